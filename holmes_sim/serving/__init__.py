"""The page of `holmes-sim serve`: edit a topology as a picture, plan it, and put two plans side by side.

`app` has the addresses, and `security` decides who may ask for them. A state of the page is an address with the digests of a
topology and of up to two plans; `store` keeps these as files. `controls` says which keys of a topology the page edits, `search`
runs `holmes-sim plan` as a child process, `numbers` compares plans, and `page` fills `page.html`. `server` runs it all.
"""
