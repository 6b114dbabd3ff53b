"""The explorer: a local web page on which the density of a table can be touched."""
