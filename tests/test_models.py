from dataclasses import replace

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from d2djax import models

KEY = jax.random.key(0)


def num_parameters(parameters):
    return sum(leaf.size for leaf in jax.tree.leaves(parameters))


def test_mlp_has_the_size_of_the_paper():
    x = jnp.zeros((3, 28, 28, 1), jnp.uint8)
    parameters = models.MLP(10).init(KEY, x)
    assert num_parameters(parameters) == 784 * 200 + 200 + 200 * 10 + 10
    assert models.MLP(10).apply(parameters, x).shape == (3, 10)


def test_mlp_by_hand_numbers():
    # One pixel, two hidden units: relu(2 x - 1) and relu(-x + 0.25), then their sum and their difference.
    hidden = {"kernel": jnp.array([[2.0, -1.0]]), "bias": jnp.array([-1.0, 0.25])}
    output = {"kernel": jnp.array([[1.0, 1.0], [1.0, -1.0]]), "bias": jnp.array([0.0, 0.5])}
    dense = {"Dense_0": hidden, "Dense_1": output}
    logits = models.MLP(2, num_hidden=2).apply({"params": dense}, jnp.array([[1.0], [0.0]]))
    np.testing.assert_allclose(logits, [[1.0, 1.5], [0.25, 0.25]], rtol=1e-6)


@pytest.mark.parametrize("width, stride", [(1, 1), (3, 1), (8, 4), (2, 5), (20, 1)])
def test_conv1d_is_a_convolution_without_padding(width, stride):
    x_key, tangent_key = jax.random.split(KEY)
    x = jax.random.normal(x_key, (2, 20, 3))
    ours = models.Conv1D(4, width=width, stride=stride)
    reference = nn.Conv(4, (width,), strides=(stride,), padding="VALID")
    kernel = jax.random.normal(jax.random.key(1), (width, 3, 4))
    parameters = {"params": {"kernel": kernel, "bias": jnp.arange(4.0)}}
    out, back = jax.vjp(ours.apply, parameters, x)
    expected, back_expected = jax.vjp(reference.apply, parameters, x)
    assert out.shape == (2, (20 - width) // stride + 1, 4)
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5)
    tangent = jax.random.normal(tangent_key, out.shape)
    for ours_leaf, reference_leaf in zip(
        jax.tree.leaves(back(tangent)), jax.tree.leaves(back_expected(tangent)), strict=True
    ):
        np.testing.assert_allclose(ours_leaf, reference_leaf, rtol=1e-5, atol=1e-5)


def test_conv1d_starts_as_a_convolution_does():
    x = jnp.zeros((1, 20, 3))
    ours = models.Conv1D(4, width=5).init(KEY, x)
    reference = nn.Conv(4, (5,), padding="VALID").init(KEY, x)
    jax.tree.map(np.testing.assert_array_equal, ours, reference)


def test_radio_cnn():
    x = jax.random.normal(KEY, (4, 2, 128))
    network = models.RadioCNN(11)
    parameters = jax.jit(network.init)(KEY, x)
    # Lengths 31, 14 and 12 follow from widths 8, 5, 3 and strides 4, 2, 1.
    convolutions = (8 * 2 + 1) * 16 + (5 * 16 + 1) * 32 + (3 * 32 + 1) * 32
    assert num_parameters(parameters) == convolutions + (12 * 32 + 1) * 64 + (64 + 1) * 11
    apply = jax.jit(network.apply)
    logits = apply(parameters, x)
    assert logits.shape == (4, 11)
    assert np.isfinite(logits).all()
    # Each point has logits of its own, whatever else is in the batch.
    assert len(np.unique(np.asarray(logits), axis=0)) == 4
    changed = apply(parameters, x.at[1:].set(0.0))
    np.testing.assert_allclose(changed[0], logits[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name, kind", [("mlp", models.MLP), ("radio_cnn", models.RadioCNN)])
def test_config_names_the_network(tiny_config, name, kind):
    network = models.make_model(replace(tiny_config, model=name))
    assert network == kind(num_classes=5)


def test_unknown_network_is_refused(tiny_config):
    with pytest.raises(ValueError, match=r"model must be one of mlp, radio_cnn; got 'vgg'"):
        models.make_model(replace(tiny_config, model="vgg"))
