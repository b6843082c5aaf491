package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A module of two packages. The upper one has two files that use each other, and a
// third; the plan has the lower one above it.
var fixture = map[string]string{
	"go.mod": "module example.com/small\n\ngo 1.26\n",
	"plan.txt": `# from the top down
lower
upper
	lower
`,
	"lower/lower.go": `package lower

// Config is configuration.
type Config struct {
` + "\tA, B, C, D, E, F, G, H, I, J, K int\n\tl int `json:\"l\"`\n\tM int `json:\"-\"`" + `
}

const One, two = 1, 2
` + strings.Repeat("\n", 300),
	"upper/a.go": `package upper

import "example.com/small/lower"

type Walker interface{ Walk() }

func Use() int { return lower.One + helper() }
`,
	"upper/b.go": `package upper

type Large struct {
	a, b, c, d, e, f, g, h, i, j, k, l int
	M int
}

func helper() int { return Use() }

func (*Large) Read() {}

func (Large) write() {
` + strings.Repeat("\t_ = 1\n", 40) + `}
`,
	"upper/c.go":      "package upper\n\nvar C = Use()\n",
	"upper/a_test.go": "package upper\n",
}

// build writes the files of a module, and measures it.
func build(t *testing.T, files map[string]string) (h *house, folder string) {
	t.Helper()
	t.Setenv("GOFLAGS", "")
	folder = t.TempDir()
	for name, text := range files {
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	h, err := measure(folder, filepath.Join(folder, "plan.txt"))
	if err != nil {
		t.Fatal(err)
	}
	return h, folder
}

func TestHouse(t *testing.T) {
	h, _ := build(t, fixture)
	var out bytes.Buffer
	h.print(&out)
	want := `
files  lines  code  tests  lines  symbols  arrows between files  in circles  package
1 310 7 0 0 2 0 0 lower
3 63 55 1 1 5 3 2 upper
4 373 62 1 1 7 3 2 2 packages
0 0 0 0 0 0 0 0 0 packages for tests
Arrows between packages: 1, in circles 0, upward 1
upper imports lower
Functions: 4, median 1 lines
Functions over 40 lines: 1
42 upper.Large.write
Types over 25 methods or 12 fields: 1
2 methods 13 fields ( 1 open) upper.Large
Such types with open fields only: 1
0 methods 13 fields (13 open) lower.Config
Files over 300 lines: 1
310 lower/lower.go
`
	if got, want := strings.Fields(out.String()), strings.Fields(want); !slices.Equal(got, want) {
		t.Errorf("got\n%s", &out)
	}
}

func TestCircles(t *testing.T) {
	a := arrows{}
	for _, way := range []string{"ab", "bc", "ca", "cd", "ef", "dd"} {
		a.add(way[:1], way[1:])
	}
	if got := a.inCircles(); len(a) != 5 || len(got) != 3 {
		t.Errorf("%d arrows, in circles %v", len(a), got)
	}
}
