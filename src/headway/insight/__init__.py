"""Folds over events and step records."""
