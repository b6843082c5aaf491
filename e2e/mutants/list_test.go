package main

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The old text of each mutant exists in its file.
func TestMutantsReplaceSomething(t *testing.T) {
	t.Parallel()
	all, err := readAll(".")
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 60 {
		t.Errorf("%d mutants", len(all))
	}
	if _, err := variants("../..", all); err != nil {
		t.Error(err)
	}
}

// Each suite of a mutant contains at least one test.
func TestSuitesHaveTests(t *testing.T) {
	t.Parallel()
	all, err := readAll(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		for _, s := range m.suites {
			if files, err := filepath.Glob(filepath.Join("../..", s.folder, "*_test.go")); len(files) == 0 || err != nil {
				t.Errorf("%s: no tests in %s", m.removes, s.folder)
			}
		}
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, list string
		want       int
		wrong      bool
	}{
		{"two", "# comment\n\n@ a.go: one\n- x\n+ y\n@ a.go: two\n- x\n- z\n+ \n", 2, false},
		{"no description", "@ a.go\n- x\n", 0, true},
		{"a line of no mutant", "- x\n", 0, true},
		{"another sign", "@ a.go: one\n* x\n", 0, true},
		{"suites", "= a b:TestC\n@ a.go: one\n- x\n+ y\n", 1, false},
		{"no suites", "= \n@ a.go: one\n- x\n+ y\n", 0, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			all, err := parse(tt.list)
			if len(all) != tt.want || err != nil != tt.wrong {
				t.Errorf("%d mutants, %v", len(all), err)
			}
		})
	}
}

const source = `package a

var v = 1

func f(a bool) bool {
	if a {
		return true
	}
	return false
}

func g() {
	if v == 2 {
		v = 3
	}
}
`

func TestChanged(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, old, new, want string
		err                  error
	}{
		{"a body", "if a {", "if true {", "{\n\tif true {\n\t\treturn true\n\t}\n\treturn false\n}", nil},
		{"not there", "d", "dd", "", errNotFound},
		{"twice", "if ", "e", "", errSeveral},
		{"nothing", "if a", "if a", "", errNothing},
		{"a variable", "v = 1", "v = 2", "", errNoFunction},
		{"a signature", "a bool", "b bool", "", errNoFunction},
		{"a function more", "func g()", "func h() {}\n\nfunc g()", "", errNoFunction},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, got, err := mutant{file: "a.go", old: []string{tt.old}, new: []string{tt.new}}.changed(source)
			if got != tt.want || !errors.Is(err, tt.err) {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}

func TestMerged(t *testing.T) {
	t.Parallel()
	var all []variant
	for n, m := range []mutant{
		{old: []string{"if a {"}, new: []string{"if !a {"}}, {old: []string{"v == 2"}, new: []string{"v == 4"}}, {old: []string{"return true"}, new: []string{"return a"}},
	} {
		f, text, err := m.changed(source)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, variant{f, n + 1, text})
	}
	got := merged(source, all)
	if _, err := functions(got); err != nil {
		t.Fatalf("%v in %s", err, got)
	}
	for _, want := range []string{"case 1:\n{\n\tif !a {", "case 3:\n{\n\tif a {\n\t\treturn a", "case 2:\n{\n\tif v == 4 {\n\t\tv = 3\n\t}\n}\n\treturn\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("%s does not have %q", got, want)
		}
	}
}

// A line that lists packages applies to the mutants below it.
func TestSuites(t *testing.T) {
	t.Parallel()
	all, err := parse("@ a.go: one\n- x\n= a b:TestC\n@ a.go: two\n- x\n@ a.go: three\n- x\n= d\n@ a.go: four\n- x\n")
	if err != nil {
		t.Fatal(err)
	}
	ab := []suite{{"a", ""}, {"b", "TestC"}}
	for i, want := range [][]suite{nil, ab, ab, {{"d", ""}}} {
		if got := all[i].suites; !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", all[i], got, want)
		}
	}
}

// Errors contain the name of the mutant and its list.
func TestErrorsNameMutant(t *testing.T) {
	t.Parallel()
	for name, m := range map[string]mutant{
		"a file that is gone": {file: "none.go", old: []string{"a"}},
		"a text that is gone": {file: "list.go", old: []string{"no such " + "text"}},
	} {
		m.removes, m.list, m.line = "x", "people.txt", 7
		if _, err := variants(".", []mutant{m}); err == nil || !strings.Contains(err.Error(), "people.txt:7: "+m.file+": x: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
