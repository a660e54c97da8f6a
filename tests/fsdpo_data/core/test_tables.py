"""Tests of TOML tables: the first access reads the file."""

from fsdpo_data.core.toml_tables import TomlTable, read_module_table


def test_the_first_access_reads_the_rows(tmp_path):
    module = tmp_path / "module.py"
    table = TomlTable(str(module), lambda name, price: (name, price))
    (tmp_path / "module.toml").write_text("[b]\nprice = 2\n[a]\nprice = 1\n", encoding="utf-8")
    assert list(table) == ["b", "a"]
    assert table["a"] == ("a", 1)
    assert table.get("c") is None
    assert read_module_table(str(module))["b"] == {"price": 2}
