package caddymodule

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

const conformanceDocument = "../docs/conformance.md"

// conformanceModule is our port of one test module of a plan, under its id.
type conformanceModule struct {
	id     string
	checks string // in a few words

	// result is what stands in the document where the test passes. Default: pass.
	result string

	// run is the test; nil where the module does not apply or what it needs is not
	// built, and result says why.
	run func(*relyingParty)

	// waits modules let time pass, and so run in a bubble of synctest.
	waits bool
}

// conformancePlan is a list of modules that all run with each of some clients.
type conformancePlan struct {
	name, text string
	modules    []conformanceModule
	parties    []conformanceParty // default: the first client alone
}

// conformanceParty makes a relying party what a plan asks for.
type conformanceParty struct {
	name   string // above its column, where there are more than one
	become func(*relyingParty)
}

// by is a plan for one client alone.
func by(become func(*relyingParty)) []conformanceParty { return []conformanceParty{{"result", become}} }

func conformancePlans() []conformancePlan {
	return slices.Concat([]conformancePlan{basicPlan()}, implicitPlan(), formPostPlans(), []conformancePlan{
		configPlan(), logoutPlan(), backchannelPlan(), dynamicPlan(), assertionPlan(), otherPlans(),
		smartDiscoveryPlan(), standalonePlan(), backendServicesPlan(), introspectionPlan(), g10Plan(), notBuiltPlan(),
	})
}

// TestConformance runs our ports of the modules by which the OpenID Foundation's
// suite and Inferno test servers, through a whole gateway, and compares what comes
// of it with docs/conformance.md; -update writes that.
func TestConformance(t *testing.T) {
	site := newConformanceSite(t)
	document := conformanceHead
	complete := true
	for _, plan := range conformancePlans() {
		t.Run(plan.name, func(t *testing.T) {
			table, ran := site.runPlan(t, plan)
			document += table
			complete = complete && ran
		})
	}
	if t.Failed() || !complete { // or only some were asked for by -run
		return
	}
	if *update {
		if err := os.WriteFile(conformanceDocument, []byte(document), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(conformanceDocument)
	if err != nil || string(text) != document {
		t.Errorf("docs/conformance.md is not what the tests say (%v): run go test ./caddymodule -run TestConformance -update", err)
	}
}

const conformanceHead = `# Conformance

What our own ports of public test modules say of this server. Each has the id of the module that it does over: of the
OpenID Foundation's conformance suite, of Inferno's SMART App Launch test kit, and of the (g)(10) test kit. They check
what the modules check, through a whole gateway made from a Caddyfile.

These are our ports. **They are no certification**, nobody but us has run them, and they are no substitute for the
suites themselves. *pass*: the port passes. *skipped*: the server refuses what it does not do, with the right error,
and the module then ends as skipped. *not applicable*, *not built*: nothing was tested. *not run here*: the tests that are
named do the like, of a part of the server.

Where the interface of this server and the plans differ, the interface wins: errors come without an error_description;
for ` + "`response_type=token`" + `, which no plan uses, they come in the query. Requests by POST are taken where ` + "`authorize_post`" + `
says so, as here. PKCE is not required of the clients here, nor are they of the kind that people must consent to.

This page is written by ` + "`go test ./caddymodule -run TestConformance -update`" + `; a run without ` + "`-update`" + ` fails where it is not true.
`

// runPlan runs a plan. It returns its part of the document, and whether all of it
// ran.
func (s *conformanceSite) runPlan(t *testing.T, plan conformancePlan) (table string, all bool) {
	if plan.parties == nil {
		plan.parties = by(func(*relyingParty) {})
	}
	table = fmt.Sprintf("\n## %s\n\n%s\n\n| id | what it checks |", plan.name, plan.text)
	for _, party := range plan.parties {
		table += " " + party.name + " |"
	}
	table += "\n|---|---|" + strings.Repeat("---|", len(plan.parties)) + "\n"
	all = true
	for _, m := range plan.modules {
		result, ran := s.runAll(t, plan, m)
		all = all && ran
		table += fmt.Sprintf("| `%s` | %s |%s\n", m.id, m.checks, strings.Repeat(" "+result+" |", len(plan.parties)))
	}
	return table, all
}

// runAll runs a module with all clients of a plan. It returns the result that goes
// for each of them unless the test fails, and whether all ran.
func (s *conformanceSite) runAll(t *testing.T, plan conformancePlan, m conformanceModule) (result string, all bool) {
	result = m.result
	if result == "" {
		result = "pass"
	}
	if m.run == nil {
		if m.result == "" {
			t.Errorf("%s has neither a test nor a reason", m.id)
		}
		return result, true
	}
	all = true
	for _, party := range plan.parties {
		name := m.id
		if len(plan.parties) > 1 {
			name += "/" + party.name
		}
		ran := false
		t.Run(name, func(t *testing.T) {
			ran = true
			s.run(t, party, m)
		})
		all = all && ran
	}
	return result, all
}

func (s *conformanceSite) run(t *testing.T, party conformanceParty, m conformanceModule) {
	if !m.waits {
		m.run(s.party(t, party))
		return
	}
	now := time.Now()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(now)) // the bubble begins in the past, and the gateway was made outside
		m.run(s.party(t, party))
	})
}
