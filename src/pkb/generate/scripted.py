"""A model that says what a file tells it to: for tests and demonstrations without a network. `--model scripted/FILE.json`.

The file maps a problem's stem, or `*`, to its answers, one a turn; the last one is repeated. An answer is text, or a call of
a tool: {"submit_kernel": {"code": "..."}}. Unlike inspect's own `mockllm` it counts tokens without downloading anything.
"""

import json
from pathlib import Path
from typing import Any

from inspect_ai.model import (
    ChatMessage,
    ChatMessageAssistant,
    GenerateConfig,
    ModelAPI,
    ModelOutput,
    ModelUsage,
    modelapi,
)
from inspect_ai.tool import ToolChoice, ToolInfo

_CHARACTERS_PER_TOKEN = 4


class ScriptedAPI(ModelAPI):
    def __init__(
        self,
        model_name: str,
        base_url: str | None = None,
        api_key: str | None = None,
        config: GenerateConfig = GenerateConfig(),  # noqa: B008  (the signature that inspect asks for)
        **_: Any,
    ) -> None:
        super().__init__(model_name, base_url, api_key, [], config)
        path = Path(model_name if model_name.startswith(("/", ".")) else f"./{model_name}")
        self.script: dict[str, list[Any]] = json.loads(path.read_text(encoding="utf-8"))

    async def generate(
        self, input: list[ChatMessage], tools: list[ToolInfo], tool_choice: ToolChoice, config: GenerateConfig
    ) -> ModelOutput:
        asked = next((message.text for message in input if message.role == "user"), "")
        # A prompt names its problem first; a worked example may name another one later.
        named = sorted((asked.index(stem), stem) for stem in self.script if stem in asked)
        answers = self.script[named[0][1] if named else "*"]
        turn = sum(isinstance(message, ChatMessageAssistant) for message in input)
        said = answers[min(turn, len(answers) - 1)]
        if isinstance(said, str):
            output = ModelOutput.from_content(self.model_name, said)
        else:
            ((name, arguments),) = said.items()
            output = ModelOutput.for_tool_call(self.model_name, name, arguments)
        tokens_in = await self.count_tokens(input)
        tokens_out = await self.count_text_tokens(json.dumps(said))
        output.usage = ModelUsage(input_tokens=tokens_in, output_tokens=tokens_out, total_tokens=tokens_in + tokens_out)
        return output

    async def count_text_tokens(self, text: str) -> int:
        return len(text) // _CHARACTERS_PER_TOKEN + 1

    async def count_tokens(self, input: str | list[ChatMessage], config: GenerateConfig | None = None) -> int:
        texts = [input] if isinstance(input, str) else [message.text for message in input]
        return sum([await self.count_text_tokens(text) for text in texts])


@modelapi(name="scripted")
def scripted() -> type[ModelAPI]:
    return ScriptedAPI
