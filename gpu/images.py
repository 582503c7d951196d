"""The protocol of devices with images: textures and surfaces, by which kernels reach them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy.typing as npt

from reference.devices.launch import Extent


class Images(Protocol):
    """What a device has for images; a part of `gpu.device.Device`."""

    def allocate_image(
        self,
        shape: Extent,
        dtype: npt.DTypeLike,
        name: str = "",
        *,
        channels: int = 1,
        layered: bool = False,
        cubemap: bool = False,
    ) -> Any:
        """Reserve an image: what CUDA calls an array. Kernels reach it by textures and surfaces alone.

        Parameters
        ----------
        shape : tuple of int
            Of a host array with its texels, outermost dimension first: one to three; layers, or the six faces
            of a cube, before the two of a plane. With several channels their number is the last dimension.
        dtype : dtype
            Of a channel: an integer of 8, 16 or 32 bits, float16 or float32.
        channels : int
            1, 2 or 4.
        layered, cubemap : bool
            Whether the first dimension counts layers, or faces in the order +x, -x, +y, -y, +z, -z.

        Returns
        -------
        image
            With ``shape``, ``dtype``, ``upload(host)`` and ``download()``; undefined until written.

        Raises
        ------
        ShapeError, DtypeError
            For what CUDA does not have.

        Examples
        --------
        >>> import numpy as np
        >>> from simwarp import Device
        >>> image = Device().upload_image(np.zeros((480, 640, 4), np.uint8), channels=4)
        >>> image.form.geometry, image.form.width
        ('2d', 640)
        """
        ...

    def upload_image(
        self, host: Any, name: str = "", *, channels: int = 1, layered: bool = False, cubemap: bool = False
    ) -> Any:
        """Copy a host array to an image of its shape; see `allocate_image`."""

    def texture(
        self,
        source: Any,
        *,
        address_mode: str | Sequence[str] = "clamp",
        filter_mode: str = "point",
        read_mode: str = "element",
        normalized: bool = False,
        border: float | Sequence[float] = 0.0,
        channels: int = 1,
    ) -> Any:
        """A texture: the argument of a parameter ``cudaTextureObject_t``.

        Parameters
        ----------
        source : image or Array
            An image; or an array as linear memory: of one dimension for ``tex1Dfetch``, or of two, with rows
            of a multiple of 32 bytes. Of an array with several ``channels`` these are the last dimension.
        address_mode : str, or up to three of them
            What lies beyond the texels along x, y and z: "clamp", "border"; with normalised coordinates also
            "wrap" and "mirror".
        filter_mode : str
            "point", or "linear" for the mean of the texels around a place.
        read_mode : str
            "element", or "normalized": integers of 8 or 16 bits as floats from 0 or -1 to 1.
        normalized : bool
            Whether coordinates go from 0 to 1, instead of to the number of texels.
        border : float, or up to four of them
            The border's colour.

        Returns
        -------
        handle
            Keep it until the kernels that take it have ended.

        Raises
        ------
        ShapeError, DtypeError, SchemeError
            For what CUDA refuses.

        Examples
        --------
        >>> import numpy as np
        >>> from simwarp import Device
        >>> device = Device()
        >>> image = device.upload_image(np.zeros((8, 8), np.float32), "image")
        >>> device.texture(image, filter_mode="linear", address_mode="wrap", normalized=True)
        <Texture 0x1 of image>
        """
        ...

    def surface(self, image: Any) -> Any:
        """A surface of an image: the argument of a ``cudaSurfaceObject_t``; keep it as long as a texture.

        Its ``download()`` copies the image.
        """
