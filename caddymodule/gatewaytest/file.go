package gatewaytest

import (
	"os"
	"path/filepath"
	"testing"
)

// WriteFile makes a file that lasts as long as the test, and returns its path.
func WriteFile(t testing.TB, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	Put(t, path, content)
	return path
}

// Put writes a file.
func Put(t testing.TB, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// ReadFile is what a file holds.
func ReadFile(t testing.TB, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Root is the path of a file of the repository, by its path from the folder with go.mod.
func Root(path string) string {
	folder := "."
	for {
		if _, err := os.Stat(filepath.Join(folder, "go.mod")); err == nil {
			return filepath.Join(folder, path)
		}
		if abs, err := filepath.Abs(folder); err != nil || filepath.Dir(abs) == abs {
			return path // opening it fails with an error that names the path
		}
		folder = filepath.Join("..", folder)
	}
}
