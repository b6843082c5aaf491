package enforce_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/enforce"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
)

var update = flag.Bool("update", false, "write the decision table of docs/evidence/guard.md anew")

const (
	guardDocument = "../../../docs/evidence/guard.md"
	tableBegin    = "<!-- TestDecisionTable writes what follows. -->\n"
	tableEnd      = "<!-- TestDecisionTable has written what precedes. -->\n"
)

// TestDecisionTable sends each interaction under each kind of scope, and compares the answers with docs/evidence/guard.md. With
// -update it writes them there.
func TestDecisionTable(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(guardDocument)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(text), tableBegin)
	_, after, closed := strings.Cut(rest, tableEnd)
	if !found || !closed {
		t.Fatalf("%s has no place for the table", guardDocument)
	}
	table := refusalTable(t) + "\n## Decisions by kind of scope\n\n" + legend + decisionTable(t, askers) +
		"\n## Decisions by permission\n\nUnder this one scope, for an own record.\n" + decisionTable(t, permitted) + "\n"
	if *update {
		if err := os.WriteFile(guardDocument, []byte(before+tableBegin+table+tableEnd+after), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	for line := range strings.Lines(table) {
		if !strings.Contains(rest, line) {
			t.Errorf("%s does not have: %s", guardDocument, line)
		}
	}
	if before+tableBegin+table+tableEnd+after != string(text) {
		t.Errorf("%s is not what the guard does: go test ./caddymodule/guard/enforce -run TestDecisionTable -update", guardDocument)
	}
}

// legend says how to read the cells.
const legend = "A cell is the status. Behind it is whose records a Bundle has: *own*, *all*, only *shared* ones, or *none*; in round brackets\n" +
	"the total, or the status of a batch's entries. – is where there is no such link.\n"

// decisionTable writes what is answered, a table for each title.
func decisionTable(t *testing.T, columns []asker) string {
	t.Helper()
	var b strings.Builder
	g := newGateway(t, decided...) // for what changes nothing
	for _, row := range interactions {
		if row.request == "" {
			head := "\n| " + row.interaction + " |"
			kind := ""
			for _, column := range columns {
				if column.kind != "" {
					kind = column.kind
				}
				head += " " + kind + "<br>" + column.target + " |"
			}
			b.WriteString(head + "\n" + strings.Repeat("|---", len(columns)+1) + "|\n")
			continue
		}
		b.WriteString("| " + row.interaction + " |")
		for _, column := range columns {
			if !strings.HasPrefix(row.request, "GET") {
				g = newGateway(t, decided...)
			}
			b.WriteString(" " + g.outcomeOf(row, column) + " |")
		}
		b.WriteString("\n")
	}
	return b.String()
}

// outcomeOf sends the request of a cell. Nothing of b's may come out, or change, where the holder may not know of it.
func (g *gateway) outcomeOf(row decisionRow, column asker) string {
	g.t.Helper()
	response := g.decide(row, column)
	if response == nil {
		return "–"
	}
	body, err := io.ReadAll(response.Body)
	if err != nil {
		g.t.Fatal(err)
	}
	if !column.mayKnow() {
		if strings.Contains(string(body), "of b") || strings.Contains(string(body), "Observation/b") {
			g.t.Errorf("%s, %s, %s: %s", row.interaction, column.kind, column.target, body)
		}
		if !strings.Contains(g.server.Get("Observation/b"), `"versionId":"1"`) || !strings.Contains(g.server.Get("Patient/b"), `"versionId":"1"`) {
			g.t.Errorf("%s, %s, %s: another's record was changed", row.interaction, column.kind, column.target)
		}
	}
	return outcome(response.StatusCode, body)
}

// decide has a cell's request answered; nil if the column cannot make it.
func (g *gateway) decide(row decisionRow, column asker) *http.Response {
	g.t.Helper()
	another := ofSystem
	if column.holder.Scope == ofSystem.Scope {
		another = access.Holder{Scope: "system/*.rs"}
	}
	server := operatingServer{g.server}
	switch row.request {
	case "page":
		return g.lastPage(server, column.holder, column.of.Type)
	case "stolen":
		return g.follow(server, column.holder, g.nextOf(g.firstPage(server, another, column.of.Type)))
	case "job":
		r := decisionRow{request: "GET $export", header: preferAsync}.requestBy(column)
		return g.follow(server, column.holder, g.sendTo(server, another, r).Header.Get("Content-Location"))
	}
	return g.sendTo(server, column.holder, row.requestBy(column))
}

// follow follows a link; nil if there is none.
func (g *gateway) follow(server operatingServer, h access.Holder, link string) *http.Response {
	g.t.Helper()
	if link == "" {
		return nil
	}
	return g.sendTo(server, h, httptest.NewRequest(http.MethodGet, strings.TrimPrefix(link, "https://gateway.example"), nil))
}

// firstPage is the first of the pages of a search that have one match each.
func (g *gateway) firstPage(server operatingServer, h access.Holder, resourceType string) *http.Response {
	g.t.Helper()
	return g.sendTo(server, h, httptest.NewRequest(http.MethodGet, "/fhir/R4/"+resourceType+"?_count=1", nil))
}

// lastPage is the last of them; nil if there is but one.
func (g *gateway) lastPage(server operatingServer, h access.Holder, resourceType string) (last *http.Response) {
	g.t.Helper()
	next := g.nextOf(g.firstPage(server, h, resourceType))
	for next != "" {
		last = g.follow(server, h, next)
		body, err := io.ReadAll(last.Body)
		if err != nil {
			g.t.Fatal(err)
		}
		last.Body = io.NopCloser(bytes.NewReader(body))
		next = nextIn(body)
	}
	return last
}

// nextOf is the link of an answer to the page that follows; empty if there is none.
func (g *gateway) nextOf(response *http.Response) string {
	g.t.Helper()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		g.t.Fatal(err)
	}
	return nextIn(body)
}

func nextIn(body []byte) string {
	var b bundle
	if json.Unmarshal(body, &b) != nil {
		return ""
	}
	return b.next()
}

// sendTo is send, to a server of the caller's.
func (g *gateway) sendTo(server operatingServer, h access.Holder, r *http.Request) *http.Response {
	g.t.Helper()
	w := httptest.NewRecorder()
	rights := access.New(h, g.Shared)
	rights.Add(access.Terminology()...)
	err := g.Serve(w, r, server, enforce.Bearer{Rights: rights, Binding: h.Scope + " " + h.Patient + " " + h.User.String()})
	if refused, ok := errors.AsType[*guard.Error](err); ok {
		w = httptest.NewRecorder()
		w.Header().Set("Scope", refused.Scope)
		w.WriteHeader(refused.Status)
		w.WriteString(refused.Description)
	} else if err != nil {
		g.t.Fatalf("%s %s: %v", r.Method, r.URL, err)
	}
	return w.Result()
}

// outcome says in a word or two what was answered: the status, whose records a Bundle has, and what the entries of a
// batch were answered with.
func outcome(status int, body []byte) string {
	var b struct {
		ResourceType, Type string
		Total              *int
		Entry              []struct {
			Resource struct{ ID, ResourceType string }
			Response struct{ Status string }
		}
	}
	said := strconv.Itoa(status)
	if json.Unmarshal(body, &b) != nil || status != http.StatusOK || b.ResourceType != "Bundle" {
		return said
	}
	var entries []string
	for _, e := range b.Entry {
		word, _, _ := strings.Cut(e.Response.Status, " ")
		if !strings.HasSuffix(b.Type, "-response") {
			word = whose(e.Resource.ResourceType, e.Resource.ID)
		}
		if !slices.Contains(entries, word) {
			entries = append(entries, word)
		}
	}
	switch {
	case strings.HasSuffix(b.Type, "-response"):
		return fmt.Sprintf("%s (%s)", said, strings.Join(entries, ", "))
	case slices.Contains(entries, "all"):
		return said + " all"
	case slices.Contains(entries, "own"):
		return said + " own"
	case len(entries) > 0:
		return said + " shared"
	case b.Total != nil && *b.Total > 0:
		return fmt.Sprintf("%s (%d)", said, *b.Total)
	}
	return said + " none"
}

// whose says whose record it is: a's own, anybody's, or one that is shared.
func whose(resourceType, id string) string {
	switch {
	case id == "b":
		return "all"
	case resourceType == "Practitioner" || resourceType == "ValueSet":
		return "shared"
	}
	return "own"
}
