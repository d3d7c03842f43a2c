"""Engines that simulate: virtual time and the paper's random draw."""
