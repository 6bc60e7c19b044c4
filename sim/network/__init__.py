"""The network: paths and routes, max-min fair sharing, alpha-beta costs of collectives and point-to-point messages."""
