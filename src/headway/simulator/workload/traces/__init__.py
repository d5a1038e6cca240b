"""Files of requests: our own lines (files.py beside this) and public traces, read directly."""
