package flow

import (
	"os"
	"regexp"
	"slices"
	"testing"
)

// What is read of a request is kept until it is checked again.
func TestRequestParametersAreKept(t *testing.T) {
	t.Parallel()
	read := regexp.MustCompile(`\bp\.Get\("(\w+)"\)`)
	count := 0
	for _, file := range []string{"check.go", "../signin/parameters.go", "responsetype.go", "../token/endpoint.go"} {
		code, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if file == "../token/endpoint.go" { // CheckResource alone
			code = regexp.MustCompile(`(?s)func CheckResource.*?\n}`).Find(code)
		}
		for _, found := range read.FindAllSubmatch(code, -1) {
			count++
			if name := string(found[1]); !slices.Contains(requestParameters, name) {
				t.Errorf("%s reads %s, which is not kept", file, name)
			}
		}
	}
	if count < 20 {
		t.Errorf("only %d parameters found", count)
	}
}
