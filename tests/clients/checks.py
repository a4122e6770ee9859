"""What the client scripts share: counting checks and making images."""
import io
import sys
import traceback

from PIL import Image


class Checks:
    """Runs named checks and counts them; finish() gives the exit status."""

    def __init__(self, name):
        self.name = name
        self.passed = 0
        self.failed = 0

    def run(self, what, call):
        try:
            call()
        except Exception as error:  # a failed check must not stop the others
            self.failed += 1
            print(f"FAIL {self.name}: {what}: {type(error).__name__}: {error}")
            traceback.print_exc(limit=-3, file=sys.stdout)
        else:
            self.passed += 1
            print(f"ok   {self.name}: {what}")
        sys.stdout.flush()

    def finish(self):
        print(f"{self.name}: {self.passed} passed, {self.failed} failed")
        return 1 if self.failed or not self.passed else 0


def picture(width=128, height=128, shade=0):
    """A small test image with soft colours."""
    image = Image.new("RGB", (width, height))
    image.putdata([((x * 255) // width, (y * 255) // height, shade) for y in range(height) for x in range(width)])
    return image


def png_bytes(image):
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


def opened(data):
    image = Image.open(io.BytesIO(data))
    image.load()
    return image
