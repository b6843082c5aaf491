package main

import (
	"bytes"
	"testing"
)

// walked is a benchmark. Its rounds execute two functions in two files. A third function is called once, before the rounds.
var walked = map[string]string{
	"go.mod": "module example.com/small/walked\n\ngo 1.26\n",
	"way/a.go": `package way

func first() int { return Second{}.third() }

func prepare() int {
	return 1
}
`,
	"way/b.go": "package way\n\ntype Second struct{}\n\nfunc (Second) third() int { return 3 }\n\nfunc never() {}\n",
	"way/a_test.go": `package way

import "testing"

func BenchmarkWay(b *testing.B) {
	prepare()
	b.Run("one", func(b *testing.B) {
		for b.Loop() {
			first()
		}
	})
}
`,
}

func TestFindExecuted(t *testing.T) {
	folder := write(t, walked)
	w, err := findExecuted(folder, "way", "BenchmarkWay/one")
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	w.print(&out)
	if want := "   1 way/a.go: first\n   1 way/b.go: Second.third\nfunctions: 2, files: 2, packages: 1\n"; out.String() != want {
		t.Errorf("got\n%s", &out)
	}
	if _, err := findExecuted(folder, "way", "BenchmarkNone"); err == nil {
		t.Error("a benchmark that does not exist passes something")
	}
}
