package conformance

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The four groups of Inferno's suite smart_stu2_2 have as many modules here as there.
func TestInfernoIsWhole(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		plan    testPlan
		modules int
	}{
		{standalonePlan(), 26}, {ehrPlan(), 28}, {backendServicesPlan(), 10}, {introspectionPlan(), 16},
	} {
		ids := map[string]bool{}
		for _, m := range c.plan.modules {
			ids[m.id] = true
		}
		if len(ids) != c.modules {
			t.Errorf("%s has %d modules, not %d", c.plan.name, len(ids), c.modules)
		}
	}
}

var (
	testName = regexp.MustCompile(`\bTest[A-Z]\w*`)
	testFunc = regexp.MustCompile(`(?m)^func (Test[A-Z]\w*)\(t \*testing\.T\)`)
)

// The tests that the page names exist.
func TestNamedTests(t *testing.T) {
	t.Parallel()
	there := testNames(t)
	for _, plan := range testPlans() {
		for _, m := range plan.modules {
			for _, name := range testName.FindAllString(m.result, -1) {
				if !there[name] {
					t.Errorf("%s names %s, which is not there", m.id, name)
				}
			}
		}
	}
}

// testNames are the tests of the repository, also those of module e2e.
func testNames(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	err := filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && entry.Name() == "node_modules" {
			return fs.SkipDir
		}
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, found := range testFunc.FindAllSubmatch(text, -1) {
			names[string(found[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}
