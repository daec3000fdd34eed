"""What results say: statistics, claims, tables, pictures, and the studies behind the paper's figures."""
