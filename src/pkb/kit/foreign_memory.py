"""Device memory that another library has allocated, as torch takes it over without a copy."""


class ForeignMemory:
    def __init__(self, address: int, size: int) -> None:
        self.__cuda_array_interface__ = {
            "data": (address, False), "shape": (size,), "strides": None, "typestr": "|u1", "version": 2,
        }  # fmt: skip
