"""The page: what the agents did and what was learned, in a browser, served on the HTTP port."""
