"""Figure 2a: accuracy on RadioML while training, for every way to choose the graph.

python experiments/figure_2a.py --size small
"""

from show import show

from d2djax.analysis import claims, plots

if __name__ == "__main__":
    show("2a", ("radioml",), draw=plots.accuracy_curves, claims=claims.learning)
