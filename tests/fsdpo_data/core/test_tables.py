"""Tables beside modules: read when first asked for, and a dictionary from then on."""

from fsdpo_data.core.toml_tables import TomlTable, read_toml


def test_rows_are_read_when_the_first_is_asked_for(tmp_path):
    module = tmp_path / "module.py"
    table = TomlTable(str(module), lambda name, price: (name, price))
    (tmp_path / "module.toml").write_text("[b]\nprice = 2\n[a]\nprice = 1\n", encoding="utf-8")
    assert list(table) == ["b", "a"]
    assert table["a"] == ("a", 1)
    assert table.get("c") is None
    assert read_toml(str(module))["b"] == {"price": 2}
