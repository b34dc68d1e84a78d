"""Reverse-mode differentiation of graphs: the sweep, the registry, the rules, the checker."""
