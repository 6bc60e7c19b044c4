"""The words of a script's commands: variables, arrays, arithmetic and conditions are followed, nothing is run."""

from __future__ import annotations

import pytest

from holmes_sim.launch_reading import shell


def words(text, variables=None, fixed=None):
    """The words of the last command."""
    return shell.follow(text, variables or {}, fixed).commands[-1][1]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("TP=8\nrun --tp $TP", ["run", "--tp", "8"]),
        ("TP=8; PP=2\nrun --tp ${TP} --pp $PP", ["run", "--tp", "8", "--pp", "2"]),
        ("export TP=8 PP=2\nrun $TP$PP", ["run", "82"]),
        ("TP=${TP:-4}\nrun $TP", ["run", "4"]),
        ("A=2\nB=$A\nrun ${B:-9}", ["run", "2"]),
        ("N=4\nW=$(($N*8))\nrun $W", ["run", "32"]),
        ("N=4\nW=$(( (N + 1) / 2 ))\nrun $W", ["run", "2"]),
        ("A=(\n  --x 1  # it's a comment\n  # --y 2\n  --z\n)\nrun ${A[@]}", ["run", "--x", "1", "--z"]),
        ('A=(--x 1)\nA+=("--y 2")\nrun "${A[@]}" end', ["run", "--x", "1", "--y", "2", "end"]),
        ('O=" \\\n  --x 1 \\\n  --y 2"\nrun $O', ["run", "--x", "1", "--y", "2"]),
        ("run \\\n  --x 1 \\\n  --y", ["run", "--x", "1", "--y"]),
        ("run $UNKNOWN ${1}", ["run", "$UNKNOWN", "${1}"]),
        ("D=`pwd`\nrun --x $D", ["run", "--x", "`pwd`"]),
    ],
)
def test_words_of_a_command(text, expected):
    assert words(text) == expected


@pytest.mark.parametrize(
    ("condition", "taken"),
    [
        ('[[ "$T" == "fp8" ]]', "yes"),
        ('[ "$T" = bf16 ]', "no"),
        ('[ "$T" != bf16 ] && [ $N -gt 4 ]', "yes"),
        ('[[ $N -le 4 ]] || [ -z "$EMPTY" ]', "yes"),
        ('[ -n "${EMPTY}" ]', "no"),
    ],
)
def test_conditions_on_variables_are_followed(condition, taken):
    assert words(f"T=fp8\nN=8\nif {condition}; then\n  A=yes\nelse\n  A=no\nfi\nrun $A") == ["run", taken]


def test_only_the_first_branch_that_holds_is_taken():
    text = "if [ 1 = 2 ]; then\nA=1\nelif [ 1 = 1 ]; then\nA=2\nelif [ 2 = 2 ]; then\nA=3\nelse\nA=4\nfi\nrun $A"
    assert words(text) == ["run", "2"]


def test_what_cannot_be_followed_is_left_out_and_its_arguments_are_told():
    script = shell.follow("A=(--x 1)\nif [ -f file ]; then\n  echo hello\n  A+=(--y 2)\nfi\nrun ${A[@]}", {})
    assert script.commands == [(6, ["run", "--x", "1"])]
    assert script.left_out == [4]


def test_given_variables_win_over_the_script():
    assert words("N=1\nrun $N", fixed={"N": "4"}) == ["run", "4"]
    assert words("N=${SLURM_NNODES:-1}\nrun $N", {"SLURM_NNODES": "16"}) == ["run", "16"]
