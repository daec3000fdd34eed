"""Compares the speed of d2djax with that of its alternatives on the same machine; see README.md."""
