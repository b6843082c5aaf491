package conformance

import (
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	_ "github.com/caddy-fhir/caddy-fhir/caddymodule" // the modules that are tested
	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
)

var update = flag.Bool("update", false, "write docs/evidence/conformance.md anew")

const documentPath = "../../docs/evidence/conformance.md"

// testModule is our port of one test module of a plan, under its id.
type testModule struct {
	id     string
	checks string // in a few words

	// result is what the page says if the test passes. Default: pass.
	result string

	// run is the test. It is nil for a module that does not apply or that needs what
	// is not built; then result says why.
	run func(*relyingParty)

	// registered says that the suite has the module for clients alone that register themselves.
	registered bool

	// waits says that the module lets time pass, and so runs in a bubble of synctest.
	waits bool
}

// testPlan is a list of modules, all of which run with each variant.
type testPlan struct {
	name, text string
	modules    []testModule
	variants   []variant // default: the first client alone
}

// variant is a way to run a plan: it sets up the relying party.
type variant struct {
	name   string // above its column, where there are more than one
	become func(*relyingParty)
}

// configuredClient names the variant with a client of the configuration, beside one whose client
// registers itself.
const configuredClient = "configured client"

// alone is the list of a plan with one variant.
func alone(become func(*relyingParty)) []variant { return []variant{{"result", become}} }

func testPlans() []testPlan {
	return slices.Concat([]testPlan{basicPlan()}, implicitPlan(), formPostPlans(), []testPlan{
		configPlan(), logoutPlan(), backchannelPlan(), dynamicPlan(), otherPlans(),
		standalonePlan(), ehrPlan(), backendServicesPlan(), introspectionPlan(), bulkDataPlan(), brandsPlan(),
	}, g10Plans())
}

// TestConformance runs our ports of the OpenID Foundation's and Inferno's modules
// through a whole gateway, and compares the results with docs/evidence/conformance.md. With
// -update it writes that page.
func TestConformance(t *testing.T) {
	s := newSite(t)
	document := documentHead
	complete := true
	for _, plan := range testPlans() {
		ran := false
		t.Run(plan.name, func(t *testing.T) {
			var table string
			table, ran = s.runPlan(t, plan)
			document += table
		})
		complete = complete && ran
	}
	if t.Failed() || !complete || *caddyBinary != "" { // or only some were asked for by -run
		return
	}
	if *update {
		if err := os.WriteFile(documentPath, []byte(document), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(documentPath)
	if err != nil || string(text) != document {
		t.Errorf("docs/evidence/conformance.md is not what the tests say (%v): run go test ./caddymodule/conformance -update", err)
	}
}

const documentHead = `# Conformance

The results of our own ports of public test modules, of the OpenID Foundation's conformance suite, Inferno's SMART App
Launch test kit, and the (g)(10) test kit. Each has the id of the module it ports, and checks what the module checks,
through a whole gateway made from a Caddyfile.

These are our ports. **They are no certification**, nobody else has run them, and they are no substitute for the suites
themselves. *pass*: the port passes. *skipped*: the server refuses what it does not support with the right error, and the
module then ends as skipped. *not applicable*, *not built*: nothing was tested. *not run here*: the tests named instead
check the same, in a part of the server or from outside.

The four groups of Inferno's suite ` + "`smart_stu2_2`" + ` are whole, as is ` + "`smart_access_brands`" + `. ` + "`TestInferno`" + ` runs all of
Inferno's modules through the binary too, before HAPI's FHIR server.

Where this server's interface and the plans differ, the interface wins: errors have no error_description; for
` + "`response_type=token`" + `, which no plan uses, they come in the query. Requests by POST are accepted with ` + "`authorize_post`" + `, as
here. The clients here need no PKCE, and those of the configuration no consent. The suite has no module where a column says
*none*.

` + "`go test ./caddymodule/conformance -update`" + ` writes this page; without ` + "`-update`" + `, it fails if the page is not up to date.
`

// runPlan runs a plan. It returns the plan's part of the page, and whether every
// module ran.
func (s *site) runPlan(t *testing.T, plan testPlan) (table string, all bool) {
	if plan.variants == nil {
		plan.variants = alone(func(*relyingParty) {})
	}
	table = fmt.Sprintf("\n## %s\n\n%s\n\n| id | what it checks |", plan.name, plan.text)
	for _, v := range plan.variants {
		table += " " + v.name + " |"
	}
	table += "\n|---|---|" + strings.Repeat("---|", len(plan.variants)) + "\n"
	all = true
	for _, m := range plan.modules {
		results, ran := s.runAll(t, plan, m)
		all = all && ran
		table += fmt.Sprintf("| `%s` | %s | %s |\n", m.id, m.checks, strings.Join(results, " | "))
	}
	return table, all
}

// runAll runs a module with all variants of a plan. It returns the results for the page,
// and whether all ran.
func (s *site) runAll(t *testing.T, plan testPlan, m testModule) (results []string, all bool) {
	all = true
	for _, v := range plan.variants {
		name := m.id
		if len(plan.variants) > 1 {
			name += "/" + v.name
		}
		result, ran := s.runOne(t, name, v, m)
		results, all = append(results, result), all && ran
	}
	return results, all
}

// runOne runs a module with a variant.
func (s *site) runOne(t *testing.T, name string, v variant, m testModule) (result string, ran bool) {
	switch {
	case m.registered && v.name == configuredClient:
		return "none", true
	case m.run == nil && m.result == "":
		t.Errorf("%s has neither a test nor a reason", m.id)
	case m.run == nil:
		return m.result, true
	case m.waits && *caddyBinary != "":
		return m.result, false
	}
	t.Run(name, func(t *testing.T) {
		ran = true
		if result = s.run(t, v, m); m.result != "" {
			result = m.result
		}
	})
	return result, ran
}

// run runs a module with a variant, and returns how it ended.
func (s *site) run(t *testing.T, v variant, m testModule) (result string) {
	module := func(t *testing.T) {
		p := s.party(t, v)
		m.run(p)
		if result = "pass"; p.skipped {
			result = "skipped"
		}
	}
	if !m.waits {
		module(t)
		return result
	}
	now := time.Now()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(now)) // the bubble begins in the past, and the gateway was made outside
		module(t)
	})
	return result
}

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

func TestMain(m *testing.M) { os.Exit(gatewaytest.Main(m)) }
