"""Analysis of results: statistics, claims, tables, figures, and the studies behind the paper's figures."""
