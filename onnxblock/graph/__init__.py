"""Graphs under construction: values, operators, types, opsets, weights.  Nothing here knows about gradients."""
