from dataclasses import replace

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from d2djax import convolution, models, points
from d2djax.rng import run_key
from d2djax.validation import validate

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


class BatchFirst(nn.Module):
    """`models.Conv` for [B, *spatial, C]."""

    arguments: tuple

    @nn.compact
    def __call__(self, x):
        return jnp.swapaxes(models.Conv(*self.arguments, name="Conv_0")(jnp.swapaxes(x, 0, -1)), 0, -1)


class FlaxConv(nn.Module):
    """`nn.Conv` inside a module, so that its parameters have the same name."""

    arguments: tuple

    @nn.compact
    def __call__(self, x):
        return nn.Conv(*self.arguments, name="Conv_0")(x)


@pytest.mark.parametrize(
    "shape, window, strides, padding",
    [
        ((20,), (1,), None, None),
        ((20,), (8,), (4,), None),
        ((20,), (2,), (5,), None),
        ((20,), (20,), None, None),
        ((8, 8), (3, 3), None, (1, 1)),
        ((2, 9), (2, 3), None, (0, 2)),
        ((7, 6), (3, 2), (2, 3), (1, 0)),
    ],
)
def test_conv_is_a_convolution(shape, window, strides, padding):
    x_key, tangent_key = jax.random.split(KEY)
    x = jax.random.normal(x_key, (2, *shape, 3))
    ours = BatchFirst((4, window, strides, padding))
    zeros = tuple((size, size) for size in padding or (0,) * len(shape))
    reference = FlaxConv((4, window, strides, zeros))
    kernel = jax.random.normal(jax.random.key(1), (*window, 3, 4))
    parameters = {"params": {"Conv_0": {"kernel": kernel, "bias": jnp.arange(4.0)}}}
    out, back = jax.vjp(jax.jit(ours.apply), parameters, x)
    expected, back_expected = jax.vjp(jax.jit(reference.apply), parameters, x)
    assert out.shape == expected.shape
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5)
    tangent = jax.random.normal(tangent_key, out.shape)
    chex.assert_trees_all_close(back(tangent), back_expected(tangent), rtol=1e-5, atol=1e-5)


class Reference(nn.Module):
    """`ImageCNN` with the convolution and the pool of Flax."""

    @nn.compact
    def __call__(self, x):
        for features in (32, 64):
            x = nn.max_pool(nn.relu(nn.Conv(features, (3, 3))(x)), (2, 2), strides=(2, 2))
        x = nn.relu(nn.Dense(128)(x.reshape(x.shape[0], -1)))
        return nn.Dense(10)(x)


@pytest.mark.parametrize(
    "ours, reference, shape",
    [
        (BatchFirst((5, (3,), (2,), (1,))), FlaxConv((5, (3,), (2,), ((1, 1),))), (9, 2)),
        (BatchFirst((5, (3, 2), (2, 1), (1, 1))), FlaxConv((5, (3, 2), (2, 1), ((1, 1), (1, 1)))), (6, 5, 2)),
        (models.ImageCNN(10), Reference(), (8, 8, 3)),
    ],
)
def test_each_device_convolves_with_its_own_weights(ours, reference, shape):
    keys = jax.random.split(KEY, 3)
    x = jax.random.normal(KEY, (3, 2, *shape))
    parameters = jax.vmap(ours.init)(keys, x)

    def values(network):
        def loss(parameters, x):
            out = network.apply(parameters, x)
            return jnp.sum(jnp.sin(out)), out

        # The gradient of the input too, which only the layers after the first need in training.
        return jax.jit(jax.vmap(jax.grad(loss, argnums=(0, 1), has_aux=True)))(parameters, x)

    chex.assert_trees_all_close(values(ours), values(reference), rtol=1e-5, atol=1e-5)


def test_conv_starts_as_a_convolution_does():
    x = jnp.zeros((1, 20, 3))
    # Each as one program, as in training: compiled one by one, the steps of a draw are rounded otherwise.
    ours = jax.jit(BatchFirst((4, (5,))).init)(KEY, x)
    reference = jax.jit(FlaxConv((4, (5,), 1, "VALID")).init)(KEY, x)
    jax.tree.map(np.testing.assert_array_equal, ours, reference)


def test_networks_start_as_those_of_flax_do():
    x = jnp.zeros((1, 8, 8, 3))
    ours, reference = jax.jit(models.ImageCNN(10).init)(KEY, x), jax.jit(Reference().init)(KEY, x)
    jax.tree.map(np.testing.assert_array_equal, ours, reference)


def test_convolution_by_hand_numbers():
    # Two channels, one image of five places, two taps at every second place, one feature.
    x = jnp.array([[1.0, 2.0, 3.0, 4.0, 5.0], [0.0, 1.0, 0.0, -1.0, 2.0]])[..., None]
    kernel = jnp.array([[1.0], [10.0], [2.0], [20.0]])
    out, back = jax.vjp(lambda x, kernel: convolution.convolve(x, kernel, (2,), (2,)), x, kernel)
    # 1 * 1 + 10 * 0 + 2 * 2 + 20 * 1 and 1 * 3 + 10 * 0 + 2 * 4 + 20 * (-1); no tap sees the last place.
    np.testing.assert_array_equal(out[0, :, 0], [25.0, -9.0])
    by_x, by_kernel = back(jnp.array([1.0, 3.0]).reshape(1, 2, 1))
    np.testing.assert_array_equal(by_x[..., 0], [[1.0, 2.0, 3.0, 6.0, 0.0], [10.0, 20.0, 30.0, 60.0, 0.0]])
    np.testing.assert_array_equal(by_kernel[:, 0], [1.0 + 3 * 3.0, 0.0, 2.0 + 3 * 4.0, 1.0 - 3.0])


def test_gradient_of_a_convolution_is_a_difference():
    # The square of what is linear in x: the difference of two opposite steps is exact, however long they are.
    keys = jax.random.split(KEY, 3)
    x, direction = (jax.random.normal(key, (2, 5, 6, 3)) for key in keys[:2])
    kernel = jax.random.normal(keys[2], (3 * 2 * 2, 4))
    total = lambda x: jnp.sum(convolution.convolve(x, kernel, (3, 2), (1, 2)) ** 2)  # noqa: E731
    slope = jnp.sum(jax.grad(total)(x) * direction)
    np.testing.assert_allclose(slope, (total(x + direction) - total(x - direction)) / 2, rtol=1e-4)


def test_max_pool_is_that_of_flax():
    x = jax.random.normal(KEY, (2, 6, 4, 3))
    pool = lambda x: nn.max_pool(x, (2, 2), strides=(2, 2))  # noqa: E731
    out, back = jax.vjp(lambda x: jnp.swapaxes(convolution.max_pool(jnp.swapaxes(x, 0, -1)), 0, -1), x)
    expected, back_expected = jax.vjp(pool, x)
    np.testing.assert_array_equal(out, expected)
    np.testing.assert_array_equal(back(out)[0], back_expected(out)[0])


def test_equal_values_of_a_square_share_its_gradient():
    x = jnp.array([[3.0, 1.0, 2.0, 2.0], [3.0, 0.0, 2.0, 2.0]]).reshape(1, 2, 4, 1)
    out, back = jax.vjp(convolution.max_pool, x)
    np.testing.assert_array_equal(out.ravel(), [3.0, 2.0])
    (slope,) = back(jnp.array([8.0, 4.0]).reshape(1, 1, 2, 1))
    np.testing.assert_array_equal(slope[0, ..., 0], [[4.0, 0.0, 1.0, 1.0], [4.0, 0.0, 1.0, 1.0]])
    chex.assert_trees_all_equal(slope, jax.grad(lambda x: jnp.vdot(jnp.array([8.0, 4.0]), as_jax(x)))(x))


def as_jax(x):
    """The pool as JAX differentiates it by itself."""
    return jnp.max(x.reshape(1, 1, 2, 2, 2, 1), axis=(2, 4)).ravel()


def test_vt_cnn2_has_the_published_size():
    shapes = jax.eval_shape(models.VTCNN2(11).init, KEY, jnp.zeros((1, 2, 128)))
    assert num_parameters(shapes) == 2_830_427


def test_image_cnn():
    network = models.ImageCNN(10)
    shapes = jax.eval_shape(network.init, KEY, jnp.zeros((1, 32, 32, 3)))
    convolutions = (9 * 3 + 1) * 32 + (9 * 32 + 1) * 64
    assert num_parameters(shapes) == convolutions + (8 * 8 * 64 + 1) * 128 + (128 + 1) * 10
    logits = jax.eval_shape(network.apply, shapes, jnp.zeros((5, 32, 32, 3)))
    assert logits.shape == (5, 10)


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


@pytest.mark.parametrize("name, kind", list(models.MODELS.items()))
def test_config_names_the_network(tiny_config, name, kind):
    network = models.make_model(replace(tiny_config, model=name))
    assert network == kind(num_classes=5)


def test_unknown_network_is_refused(tiny_config):
    with pytest.raises(
        ValueError, match=r"model must be one of auto, mlp, image_cnn, radio_cnn, vt_cnn2; got 'vgg'"
    ):
        validate(replace(tiny_config, model="vgg"))


class Normalised(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(5)(nn.BatchNorm(use_running_average=False)(x.reshape(x.shape[0], -1)))


class Dropped(nn.Module):
    """Told to train by one of the usual names, and by others below."""

    @nn.compact
    def __call__(self, x, train=False):
        return nn.Dense(5)(nn.Dropout(0.5, deterministic=not train)(x.reshape(x.shape[0], -1)))


class Trained(nn.Module):
    @nn.compact
    def __call__(self, x, *, training: bool):
        return nn.Dense(5)(nn.Dropout(0.5)(x.reshape(x.shape[0], -1), deterministic=not training))


class Determined(nn.Module):
    @nn.compact
    def __call__(self, x, deterministic: bool = True):
        return nn.Dense(5)(nn.Dropout(0.5)(x.reshape(x.shape[0], -1), deterministic))


class Idle(nn.Module):
    deterministic: bool = True

    @nn.compact
    def __call__(self, x):
        return nn.Dense(5)(nn.Dropout(0.5, deterministic=self.deterministic)(x.reshape(x.shape[0], -1)))


class Forgotten(nn.Module):
    @nn.compact
    def __call__(self, x, train=False):
        return nn.Dense(5)(nn.Dropout(0.5, deterministic=True)(x.reshape(x.shape[0], -1)))


class Doubly(nn.Module):
    @nn.compact
    def __call__(self, x, train=False, deterministic=True):
        return nn.Dense(5)(x.reshape(x.shape[0], -1))


class Masked(nn.Module):
    @nn.compact
    def __call__(self, x, mask, train=False):
        return nn.Dense(5)(x.reshape(x.shape[0], -1))


@pytest.mark.parametrize("model", [Dropped(), Trained(), Determined()], ids=lambda model: type(model).__name__)
def test_networks_that_are_told_to_train(tiny_dataset, tiny_config, model):
    arranged = points.arrange(tiny_dataset, tiny_config)
    models.check_model(model, tiny_dataset.shape, 5)
    assert models.is_switched(model) and not models.is_switched(models.MLP(5))
    x = points.inputs(arranged, jnp.arange(3))
    parameters = models.first_parameters(model, KEY, x)
    dense = parameters["params"]["Dense_0"]
    flat = x.reshape(3, -1)
    np.testing.assert_allclose(
        models.logits_of(model, parameters, x), flat @ dense["kernel"] + dense["bias"], rtol=1e-5
    )
    # The key decides what is left out.
    first, again, other = (models.logits_of(model, parameters, x, run_key(seed)) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert not np.allclose(first, other)
    # One unit of the input at a time: it is left out, or counts twice.
    eye, weight = jnp.eye(flat.shape[1]).reshape(-1, *x.shape[1:]), dense["kernel"]
    kept = models.logits_of(model, parameters, eye, run_key(1)) - dense["bias"]
    share = kept / weight
    np.testing.assert_allclose(np.abs(share - 1), 1, atol=1e-4)
    assert 0 < np.sum(share[:, 0] > 1) < flat.shape[1]


@pytest.mark.parametrize(
    "model, message",
    [
        (Idle(), "Idle has a Dropout of rate 0.5 that is off in training: pass it the argument of __call__"),
        (
            Idle(False),
            "Idle must draw no random numbers in evaluation; its __call__ must take one of train, training",
        ),
        (Forgotten(), "Forgotten has a Dropout of rate 0.5 that is off in training"),
        (Doubly(), "Doubly must take one of train, training, deterministic; it takes train and deterministic"),
        (Masked(), "Masked must take its inputs and at most one of train, .*; it also needs mask"),
        (models.MLP(7), r"MLP must return \[2, 5\] logits for 2 points; got \[2, 7\]"),
        # The message says what to pass instead, not where the code failed ("jnp.pad: pad_width ...").
        (models.RadioCNN(5), r'RadioCNN cannot take points of shape \(4, 4, 1\): give model="mlp", .* recipe='),
        (Normalised(), "Normalised must have only params; it has batch_stats, params"),
    ],
)
def test_network_that_does_not_fit_the_data_is_refused(tiny_dataset, model, message):
    shape = tiny_dataset.shape
    models.check_model(models.MLP(5), shape, 5)
    with pytest.raises(ValueError, match=message):
        models.check_model(model, shape, 5)
