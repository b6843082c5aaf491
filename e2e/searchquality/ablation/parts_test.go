package main

import (
	"os"
	"testing"
)

// Each part exists in its file exactly once.
func TestParts(t *testing.T) {
	for _, p := range readParts(parts) {
		code, err := os.ReadFile("../../" + folder + p.file)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.without(string(code)); err != nil {
			t.Error(err)
		}
	}
}
