"""A prompt template."""

from fsdpo_data.models.prompts import Template

ARROW = Template(name="arrow@1", text="{question}\n->")
