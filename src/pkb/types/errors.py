"""The one exception that a user is meant to see."""


class UserError(Exception):
    """Wrong usage: printed as one line with its fix, exit status 2, never a traceback."""

    def __init__(self, message: str, fix: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix

    def __str__(self) -> str:
        return f"{self.message} ({self.fix})" if self.fix else self.message
