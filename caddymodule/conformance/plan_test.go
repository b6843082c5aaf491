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

	_ "github.com/caddy-fhir/caddy-fhir/caddymodule" // registers the modules under test
	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
)

var update = flag.Bool("update", false, "write docs/evidence/conformance.md anew")

const documentPath = "../../docs/evidence/conformance.md"

// testModule is the port of a single test module.
type testModule struct {
	id     string
	checks string // summary of the checks on the generated page

	// result is the result shown on the page if the test passes. Default: pass.
	result string

	// run runs the test. It is nil if the module does not apply or needs a missing feature; result then contains the reason.
	run func(*relyingParty)

	// registered reports that the suite runs the module only with self-registered clients.
	registered bool

	// waits reports that the module waits and must run in a synctest bubble.
	waits bool
}

// testPlan is a list of modules. Each module runs with each variant.
type testPlan struct {
	name, text string
	modules    []testModule
	variants   []variant // default: only the first configured client
}

// variant is a way to run a plan. It configures the relying party.
type variant struct {
	name   string // column title on the page if the plan has several variants
	become func(*relyingParty)
}

// configuredClient is the name of the variant with a configured client in plans that also run with a registered client.
const configuredClient = "configured client"

// singleVariant returns the variants of a plan that has only one.
func singleVariant(become func(*relyingParty)) []variant { return []variant{{"result", become}} }

func testPlans() []testPlan {
	return slices.Concat([]testPlan{basicPlan()}, implicitPlan(), formPostPlans(), []testPlan{
		configPlan(), logoutPlan(), backchannelPlan(), dynamicPlan(), otherPlans(),
		standalonePlan(), ehrPlan(), backendServicesPlan(), introspectionPlan(), bulkDataPlan(), brandsPlan(),
	}, g10Plans())
}

// TestConformance runs the ported modules of the OpenID Foundation and Inferno against a complete gateway, and compares the
// results with docs/evidence/conformance.md. With -update, it writes this page.
func TestConformance(t *testing.T) {
	s := newSite(t)
	document := documentHead
	complete := true
	printed := map[string]bool{}
	for _, plan := range testPlans() {
		ran := false
		t.Run(plan.name, func(t *testing.T) {
			var rows []row
			rows, ran = s.runPlan(t, plan)
			document += plan.section(rows, printed)
		})
		complete = complete && ran
	}
	if t.Failed() || !complete || *caddyBinary != "" { // -run may have selected only some modules
		return
	}
	if *update {
		if err := os.WriteFile(documentPath, []byte(document), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(documentPath)
	if err != nil || string(text) != document {
		t.Errorf("docs/evidence/conformance.md does not match the tests (%v): run go test ./caddymodule/conformance -update", err)
	}
}

const documentHead = `# Conformance

Results of our ports of the public test modules of the OpenID Foundation's conformance suite, Inferno's SMART App Launch test kit and Inferno's (g)(10) test kit. Each port has the id of its module, makes the same checks, and runs against a complete gateway configured by a Caddyfile.

**These results are no certification.** Nobody outside the project has run the ports, and they do not replace the suites.

A module passes unless a result is in bold:

- **skipped**: the server refuses an unsupported feature with the right error, and the original module ends as skipped.
- **not run here**: the named tests check the same, in a part of the server or from outside.
- **not in the suite**: the suite has no such module for this kind of client.
- **not applicable**: attested by the operator, unless another reason is given.
- **not built**: nothing was tested.

The four groups of Inferno's suite ` + "`smart_stu2_2`" + ` and ` + "`smart_access_brands`" + ` are complete. ` + "`TestInferno`" + ` runs all Inferno modules through the binary too, in front of HAPI FHIR.

Where the [interface](interface.md) differs from a plan, the interface applies: errors have no ` + "`error_description`" + `. Clients need no PKCE, and configured clients no consent. Authorization requests by POST need ` + "`authorize_post`" + `.

` + "`go test ./caddymodule/conformance -update`" + ` writes this page; without ` + "`-update`" + `, the test fails if the page is out of date.
`

// row is a module's line in docs/evidence/conformance.md: its id, its checks and, if it does not pass, the result.
type row struct{ id, text string }

// runPlan runs a plan. It returns the plan's rows, and whether all modules ran.
func (s *site) runPlan(t *testing.T, plan testPlan) (rows []row, all bool) {
	if plan.variants == nil {
		plan.variants = singleVariant(func(*relyingParty) {})
	}
	all = true
	for _, m := range plan.modules {
		results, ran := s.runAll(t, plan, m)
		all = all && ran
		text := fmt.Sprintf("- `%s`: %s", m.id, m.checks)
		if result := plan.summary(results); result != "pass" {
			text += ": **" + result + "**"
		}
		rows = append(rows, row{m.id, text + "\n"})
	}
	return rows, all
}

// summary returns a module's result for each variant, or a single result if all are equal.
func (p testPlan) summary(results []string) string {
	if len(slices.Compact(slices.Clone(results))) == 1 {
		return results[0]
	}
	var each []string
	for i, v := range p.variants {
		each = append(each, v.name+": "+results[i])
	}
	return strings.Join(each, "; ")
}

// section returns the plan's section of the page. printed contains the rows of earlier plans, for which only the id is printed.
func (p testPlan) section(rows []row, printed map[string]bool) string {
	text := fmt.Sprintf("\n## %s\n\n%s", p.name, p.text)
	if len(p.variants) > 1 {
		names := make([]string, len(p.variants))
		for i, v := range p.variants {
			names[i] = v.name
		}
		text += " Each module runs with: " + strings.Join(names, ", ") + "."
	}
	var list string
	var repeated []string
	for _, r := range rows {
		if printed[r.text] {
			repeated = append(repeated, "`"+r.id+"`")
		} else {
			list += r.text
		}
		printed[r.text] = true
	}
	switch {
	case list == "":
		return text + fmt.Sprintf(" The %d modules have the checks and results of the plans above.\n", len(rows))
	case repeated != nil:
		text += " Checks and results as above: " + strings.Join(repeated, ", ") + "."
	}
	return text + "\n\n" + list
}

// runAll runs a module with all variants of a plan. It returns the results for the page and whether all variants ran.
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

func (s *site) runOne(t *testing.T, name string, v variant, m testModule) (result string, ran bool) {
	switch {
	case m.registered && v.name == configuredClient:
		return "not in the suite", true
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

// run runs a module with a variant and returns the result.
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
		time.Sleep(time.Until(now)) // time in the bubble starts in the past, but the gateway was created outside the bubble
		module(t)
	})
	return result
}

// All modules of the four ported groups of Inferno's suite smart_stu2_2 are ported.
func TestInfernoIsComplete(t *testing.T) {
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

// The tests named on the page docs/evidence/conformance.md exist.
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

// testNames returns the names of all tests in the repository, including module e2e.
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
