"""A kernel under test: an NVFP4 quantizer in numpy with a planted error that random data does not show, and
the same kernel mended.

pip install fp4lab pytest && pytest test_my_kernel.py; `python test_my_kernel.py` prints what
assert_kernel says of the planted error.
"""

import numpy as np
import pytest

import fp4lab
import fp4lab.testing

# The magnitudes of E2M1 by code, and of E4M3 (its codes 0 to 126; 127 is NaN).
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
E4M3 = np.array([(c & 7) * 2.0**-9 if c < 8 else (8 + (c & 7)) * 2.0 ** (c // 8 - 10) for c in range(127)])


def nearest(values, magnitudes):
    """The codes of the nearest numbers of an ascending table; ties go to the even code."""
    middle = (magnitudes[1:] + magnitudes[:-1]) / 2
    return np.where(np.arange(len(middle)) % 2, values[..., None] >= middle, values[..., None] > middle).sum(-1)


def nearest_ties_down(values, magnitudes):
    """The planted error: ties go to the smaller number."""
    return np.searchsorted((magnitudes[1:] + magnitudes[:-1]) / 2, values)


def quantizer(rounded):
    """A kernel: float32 matrix -> packed codes, block scales, amax, by Transformer Engine's formula."""

    @np.errstate(divide="ignore", over="ignore")
    def kernel(x):
        if x.shape[1] % 16 or not np.isfinite(x).all():
            raise NotImplementedError("whole blocks of finite numbers")
        amax = np.abs(x).max()
        encode = np.float32(2688) / amax if amax else np.float32(1)  # 2688 = 6 * 448
        encode = min(encode, np.finfo(np.float32).max)
        blocks = x.reshape(x.shape[0], -1, 16)
        largest = np.abs(blocks).max(2)
        scales = nearest(np.minimum(largest * (encode * np.float32(1 / 6)), np.float32(448)), E4M3)
        factor = 1 / (E4M3[scales].astype(np.float32) * (1 / encode))
        factor = np.minimum(factor, np.finfo(np.float32).max)  # of a block whose scale rounds to 0
        codes = rounded(np.minimum(np.abs(blocks * factor[:, :, None]), 6), E2M1)
        codes = (codes + 8 * np.signbit(blocks)).reshape(x.shape).astype(np.uint8)
        return codes[:, ::2] | codes[:, 1::2] << 4, scales.astype(np.uint8), amax

    return kernel


planted, mended = quantizer(nearest_ties_down), quantizer(nearest)


@pytest.mark.parametrize("kernel", [planted, mended])
def test_random_numbers_tell_nothing(kernel):
    x = np.random.default_rng(0).standard_normal((64, 256), np.float32)
    codes, scales, amax = kernel(x)
    assert fp4lab.verify(x, codes, scales, "nvfp4.te", tensor_scale=amax)


def test_directed_cases_find_the_planted_error():
    with pytest.raises(AssertionError, match="cause: ties-toward-zero") as caught:
        fp4lab.testing.assert_kernel(planted, "nvfp4.te", allow_declined=True)
    _, _, reproducer = str(caught.value).partition("to reproduce:\n")
    with pytest.raises(AssertionError):  # the lines that are to be pasted into a test
        exec(reproducer, {"kernel": planted})
    exec(reproducer, {"kernel": mended})


def test_the_mended_kernel_passes():
    report = fp4lab.testing.assert_kernel(mended, "nvfp4.te", allow_declined=True)
    assert report.accepted and report.cases > report.declined


if __name__ == "__main__":
    try:
        fp4lab.testing.assert_kernel(planted, "nvfp4.te", allow_declined=True)
    except AssertionError as error:
        print(error)
    print(fp4lab.testing.assert_kernel(mended, "nvfp4.te", allow_declined=True).text)
