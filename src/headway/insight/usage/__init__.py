"""Files of usage: what a day of answers used, as servers count it in the `usage` of each."""
