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
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/fhirtest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/rawjson"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

var update = flag.Bool("update", false, "write the decision table of docs/evidence/guard.md anew")

const (
	guardDocument = "../../../docs/evidence/guard.md"
	tableBegin    = "<!-- TestDecisionTable writes what follows. -->\n"
	tableEnd      = "<!-- TestDecisionTable has written what precedes. -->\n"
)

// TestDecisionTable sends each interaction under each kind of scope and compares the results with docs/evidence/guard.md. With
// -update, it writes them to that file.
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
	table := refusalTable(t) + "\n## Decisions by kind of scope\n\n" + legend + caseTable(askers) + decisionTable(t, askers) +
		"\n## Decisions by permission\n\nUnder one `patient/` scope with the permissions named in the heading, for the patient's own record:\n" + decisionTable(t, permitted) + "\n"
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
		t.Errorf("%s does not match the guard: go test ./caddymodule/guard/enforce -run TestDecisionTable -update", guardDocument)
	}
}

const legend = "A cell has the status and, for a Bundle, whose records it contains: *own*, *all*, only *shared*, or *none*. Round brackets contain the total, " +
	"or the statuses of a batch's entries. – means that there is no such link. Numbers in headings are those of the cases; cases with equal results share a column, and interactions a row.\n"

// caseTable returns a table of the numbered cases.
func caseTable(cases []decisionColumn) string {
	var b strings.Builder
	b.WriteString("\n| case | scopes and user | requested resource |\n|--:|---|---|\n")
	kind := ""
	for _, c := range cases {
		if c.kind != "" {
			kind = c.kind
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", c.name, kind, c.target)
	}
	return b.String()
}

// decisionTable returns one table of decisions per title. Equal columns are merged; their heading lists all cases.
func decisionTable(t *testing.T, columns []decisionColumn) string {
	t.Helper()
	var b strings.Builder
	g := newGateway(t, decided...) // gateway for read-only requests
	var rows [][]string            // current table: the interaction, followed by a cell per case
	for _, row := range dispatchTable {
		if row.request == "" {
			b.WriteString(mergeEqual(rows))
			rows = [][]string{{row.interaction}}
			for _, column := range columns {
				rows[0] = append(rows[0], column.name)
			}
			continue
		}
		cells := []string{row.interaction}
		for _, column := range columns {
			if !strings.HasPrefix(row.request, "GET") {
				g = newGateway(t, decided...)
			}
			cells = append(cells, g.outcomeOf(row, column))
		}
		rows = append(rows, cells)
	}
	return b.String() + mergeEqual(rows)
}

// mergeEqual formats rows as a table with the first row as its heading. Equal columns and equal rows are merged.
func mergeEqual(rows [][]string) string {
	if rows == nil {
		return ""
	}
	var order []string // cells of each distinct column
	names := map[string][]string{}
	for i := 1; i < len(rows[0]); i++ {
		var cells []string
		for _, row := range rows[1:] {
			cells = append(cells, row[i])
		}
		key := strings.Join(cells, "|")
		if names[key] == nil {
			order = append(order, key)
		}
		names[key] = append(names[key], rows[0][i])
	}
	var b strings.Builder
	b.WriteString("\n| " + rows[0][0] + " |")
	for _, key := range order {
		b.WriteString(" " + strings.Join(names[key], ", ") + " |")
	}
	b.WriteString("\n|---" + strings.Repeat("|---", len(order)) + "|\n")
	written := make([]bool, len(rows))
	for i := 1; i < len(rows); i++ {
		if written[i] {
			continue
		}
		var equal []string
		for j := i; j < len(rows); j++ {
			if slices.Equal(rows[i][1:], rows[j][1:]) {
				equal, written[j] = append(equal, rows[j][0]), true
			}
		}
		b.WriteString("| " + strings.Join(equal, ", ") + " |")
		for _, key := range order {
			b.WriteString(" " + strings.Split(key, "|")[i-1] + " |")
		}
		b.WriteString("\n")
	}
	return b.String()
}

// outcomeOf sends a cell's request and summarizes the response. It fails the test if patient b's data leaks or changes.
func (g *gateway) outcomeOf(row decisionRow, column decisionColumn) string {
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

// decide sends a cell's request and returns the response, or nil if the row has no request for the column.
func (g *gateway) decide(row decisionRow, column decisionColumn) *http.Response {
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

// follow requests a link; it returns nil if the link is empty.
func (g *gateway) follow(server operatingServer, h access.Holder, link string) *http.Response {
	g.t.Helper()
	if link == "" {
		return nil
	}
	return g.sendTo(server, h, httptest.NewRequest(http.MethodGet, strings.TrimPrefix(link, "https://gateway.example"), nil))
}

// firstPage returns the first page of a search with one match per page.
func (g *gateway) firstPage(server operatingServer, h access.Holder, resourceType string) *http.Response {
	g.t.Helper()
	return g.sendTo(server, h, httptest.NewRequest(http.MethodGet, "/fhir/R4/"+resourceType+"?_count=1", nil))
}

// lastPage returns the last page of the search of firstPage, or nil if there is a single page.
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

// nextOf returns the URL of the response's next link, or "".
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

func (g *gateway) sendTo(server operatingServer, h access.Holder, r *http.Request) *http.Response {
	g.t.Helper()
	w := httptest.NewRecorder()
	rights := access.New(h, g.TypeRules)
	rights.Add(access.TerminologyGrants()...)
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

// outcome summarizes a response: the status, the owners of the records in a Bundle, and the statuses of a batch's entries.
func outcome(status int, body []byte) string {
	var b struct {
		ResourceType, Type string
		Total              *int
		Entry              []struct {
			Resource struct{ ID, ResourceType string }
			Response struct{ Status string }
		}
	}
	result := strconv.Itoa(status)
	if json.Unmarshal(body, &b) != nil || status != http.StatusOK || b.ResourceType != "Bundle" {
		return result
	}
	var entries []string
	for _, e := range b.Entry {
		word, _, _ := strings.Cut(e.Response.Status, " ")
		if !strings.HasSuffix(b.Type, "-response") {
			word = ownershipOf(e.Resource.ResourceType, e.Resource.ID)
		}
		if !slices.Contains(entries, word) {
			entries = append(entries, word)
		}
	}
	switch {
	case strings.HasSuffix(b.Type, "-response"):
		return fmt.Sprintf("%s (%s)", result, strings.Join(entries, ", "))
	case slices.Contains(entries, "all"):
		return result + " all"
	case slices.Contains(entries, "own"):
		return result + " own"
	case len(entries) > 0:
		return result + " shared"
	case b.Total != nil && *b.Total > 0:
		return fmt.Sprintf("%s (%d)", result, *b.Total)
	}
	return result + " none"
}

// ownershipOf returns "own" for a record of patient a, "all" for one of patient b, and "shared" for a resource of no patient.
func ownershipOf(resourceType, id string) string {
	switch {
	case id == "b":
		return "all"
	case resourceType == "Practitioner" || resourceType == "ValueSet":
		return "shared"
	}
	return "own"
}

// decided are the records of the decision table. Records of patient b contain the text "of b".
var decided = []string{
	`{"resourceType":"Patient","id":"a","name":[{"family":"Adams"}],"generalPractitioner":[{"reference":"Practitioner/p"}]}`,
	`{"resourceType":"Patient","id":"b","name":[{"family":"Brown","text":"of b"}],"generalPractitioner":[{"reference":"Practitioner/p"}]}`,
	`{"resourceType":"Practitioner","id":"p","name":[{"family":"Park"}]}`,
	`{"resourceType":"Encounter","id":"e","status":"finished","subject":{"reference":"Patient/a"}}`,
	decidedObservation("o", "a", "laboratory", ""),
	decidedObservation("v", "a", "vital-signs", ""),
	decidedObservation("b", "b", "laboratory", `,"note":[{"text":"of b"}]`),
	`{"resourceType":"ValueSet","id":"s","status":"active"}`,
	`{"resourceType":"DiagnosticReport","id":"d","status":"final","subject":{"reference":"Patient/a"},"result":[{"reference":"Observation/o"}]}`,
	`{"resourceType":"DiagnosticReport","id":"b","status":"final","subject":{"reference":"Patient/b"},"result":[{"reference":"Observation/b"}],"conclusion":"of b"}`,
}

// decidedTexts maps references to the records of decided.
var decidedTexts = func() map[string]string {
	texts := map[string]string{}
	for _, text := range decided {
		texts[referenceOf(text)] = text
	}
	return texts
}()

func decidedObservation(id, patient, category, more string) string {
	return fmt.Sprintf(`{"resourceType":"Observation","id":%q,"status":"final","category":[{"coding":[{"system":"http://c","code":%q}]}],`+
		`"subject":{"reference":"Patient/%s"},"encounter":{"reference":"Encounter/e"},"performer":[{"reference":"Practitioner/p"}]%s}`, id, category, patient, more)
}

// decisionColumn is a column of the decision table: a kind of scope and the requested resource.
type decisionColumn struct {
	name, kind, target string // shown in the heading and the table of cases
	holder             access.Holder
	of                 interaction.Reference
	owner              string // patient who owns the resource
}

var (
	ownRecord     = interaction.Reference{Type: "Observation", ID: "o"}
	ownVital      = interaction.Reference{Type: "Observation", ID: "v"}
	otherRecord   = interaction.Reference{Type: "Observation", ID: "b"}
	sharedRecord  = interaction.Reference{Type: "Practitioner", ID: "p"}
	ofPatient     = access.Holder{Scope: "patient/*.cruds", Patient: "a"}
	ofLaboratory  = access.Holder{Scope: "patient/Observation.cruds?category=http://c|laboratory", Patient: "a"}
	userPatient   = access.Holder{Scope: "user/*.cruds", User: interaction.Reference{Type: "Patient", ID: "a"}, UserPatient: "a"}
	userRelated   = access.Holder{Scope: "user/*.cruds", User: interaction.Reference{Type: "RelatedPerson", ID: "r"}, UserPatient: "a"}
	userClinician = access.Holder{Scope: "user/*.cruds", User: interaction.Reference{Type: "Practitioner", ID: "p"}}
	userPerson    = access.Holder{Scope: "user/*.cruds", User: interaction.Reference{Type: "Person", ID: "x"}}
	ofSystem      = access.Holder{Scope: "system/*.cruds"}
	ofFHIRUser    = access.Holder{Scope: "openid fhirUser", User: interaction.Reference{Type: "Patient", ID: "a"}}
	ofOpenID      = access.Holder{Scope: "openid", User: interaction.Reference{Type: "Patient", ID: "a"}}
)

// askers are the columns of the first table.
var askers = []decisionColumn{
	{"1", "`patient/*.cruds`", "own", ofPatient, ownRecord, "a"},
	{"2", "", "another's", ofPatient, otherRecord, "b"},
	{"3", "", "shared type", ofPatient, sharedRecord, "a"},
	{"4", "`patient/Observation.cruds?category=…`", "own, matches", ofLaboratory, ownRecord, "a"},
	{"5", "", "own, does not match", ofLaboratory, ownVital, "a"},
	{"6", "", "another's, matches", ofLaboratory, otherRecord, "b"},
	{"7", "`user/*.cruds`, a Patient", "own", userPatient, ownRecord, "a"},
	{"8", "", "another's", userPatient, otherRecord, "b"},
	{"9", "`user/*.cruds`, a RelatedPerson", "their patient's", userRelated, ownRecord, "a"},
	{"10", "", "another's", userRelated, otherRecord, "b"},
	{"11", "`user/*.cruds`, a Practitioner", "anybody's", userClinician, otherRecord, "b"},
	{"12", "`user/*.cruds`, a Person or unknown", "anything", userPerson, ownRecord, "a"},
	{"13", "`system/*.cruds`", "anybody's", ofSystem, otherRecord, "b"},
	{"14", "`openid fhirUser`, a Patient", "their Patient", ofFHIRUser, interaction.Reference{Type: "Patient", ID: "a"}, "a"},
	{"15", "", "another Patient", ofFHIRUser, interaction.Reference{Type: "Patient", ID: "b"}, "b"},
	{"16", "", "own record", ofFHIRUser, ownRecord, "a"},
	{"17", "no resource scope", "anything", ofOpenID, ownRecord, "a"},
}

// permitted are the columns of the second table: scopes with a single permission.
var permitted = func() []decisionColumn {
	var all []decisionColumn
	for _, p := range []string{"c", "r", "u", "d", "s", "rs", "read", "write"} {
		all = append(all, decisionColumn{"`" + p + "`", "`patient/*." + p + "`", "own", access.Holder{Scope: "patient/*." + p, Patient: "a"}, ownRecord, "a"})
	}
	return all
}()

// mayKnow reports whether the holder may see data of patient b.
func (a decisionColumn) mayKnow() bool {
	return a.holder.Scope == ofSystem.Scope || a.holder.User == userClinician.User
}

// decisionRow is a row of the decision table: an interaction and its request. In the request, {type}, {id}, {owner} and {other}
// stand for the column's values, {new} for a new version of the resource, and {moved} for one that refers to another patient.
type decisionRow struct {
	interaction, request string // if request is empty, interaction is the title of the following rows
	body, header         string
}

const (
	preferAsync   = "Accept: application/fhir+json\nPrefer: respond-async"
	asJSONPatch   = "Content-Type: application/json-patch+json"
	fhirPathPatch = `{"resourceType":"Parameters","parameter":[{"name":"operation","part":[{"name":"type","valueCode":"replace"},{"name":"path","valueString":"{type}.language"},{"name":"value","valueCode":"en"}]}]}`
	batchOf       = `{"resourceType":"Bundle","type":"%s","entry":[%s]}`
	getEntry      = `{"request":{"method":"GET","url":"{type}/{id}"}}`
	putEntry      = `{"resource":{new},"request":{"method":"PUT","url":"{type}/{id}"}}`
	ownEntry      = `{"request":{"method":"GET","url":"Patient/a"}}`
)

var dispatchTable = []decisionRow{
	{"Reading", "", "", ""},
	{"`read`", "GET {type}/{id}", "", ""},
	{"`vread`", "GET {type}/{id}/_history/1", "", ""},
	{"`history-instance`", "GET {type}/{id}/_history", "", ""},
	{"`history-type`", "GET {type}/_history", "", ""},
	{"`history-system`", "GET _history", "", ""},
	{"Searching", "", "", ""},
	{"`search-type`", "GET {type}", "", ""},
	{"search by `_id`", "GET {type}?_id={id}", "", ""},
	{"search by POST", "POST {type}/_search", "_id={id}", "Content-Type: application/x-www-form-urlencoded"},
	{"search with `_include`", "GET {type}?_include=Observation:subject&_include=Patient:general-practitioner", "", ""},
	{"search with `_revinclude`", "GET {type}?_revinclude=Observation:subject&_revinclude=Observation:performer", "", ""},
	{"search with a chain", "GET {type}?{chain}", "", ""},
	{"search with `_has`", "GET {type}?_has:{has}:status=final", "", ""},
	{"search with `_filter`, `_list`, `_query`, `_text` or `_content`", "GET {type}?_filter=status eq final", "", ""},
	{"search with a parameter that only the FHIR server knows", "GET {type}?_unheard=1", "", ""},
	{"search with `_sort`", "GET {type}?_sort=_lastUpdated", "", ""},
	{"search with `_summary=count`", "GET {type}?_summary=count", "", ""},
	{"search with `_elements`", "GET {type}?_elements=id", "", ""},
	{"`search-compartment` of the record's patient", "GET Patient/{owner}/{type}", "", ""},
	{"`search-compartment` of an Encounter", "GET Encounter/e/Observation", "", ""},
	{"`search-system`", "GET ?_type=Patient,Observation,Practitioner", "", ""},
	{"`search-system` without `_type`", "GET ", "", ""},
	{"page link of the token", "page", "", ""},
	{"page link of another token", "stolen", "", ""},
	{"page link of the FHIR server", "GET ?_getpages=0", "", ""},
	{"Writing", "", "", ""},
	{"`create`", "POST {type}", "{new}", ""},
	{"`create` of a record that names two patients", "POST Observation", "{two}", ""},
	{"`conditional-create` without a match", "POST {type}", "{new}", "If-None-Exist: identifier=none"},
	{"`conditional-create` that matches the record", "POST {type}", "{new}", "If-None-Exist: _id={id}"},
	{"`update`", "PUT {type}/{id}", "{new}", ""},
	{"`update` that creates", "PUT {type}/fresh", "{fresh}", ""},
	{"`update` that moves the record to another patient", "PUT {type}/{id}", "{moved}", ""},
	{"`conditional-update`", "PUT {type}?_id={id}", "{new}", ""},
	{"JSON Patch", "PATCH {type}/{id}", `[{"op":"add","path":"/language","value":"en"}]`, asJSONPatch},
	{"JSON Patch that moves the record to another patient", "PATCH {type}/{id}", `[{"op":"replace","path":"/subject/reference","value":"Patient/{other}"}]`, asJSONPatch},
	{"FHIRPath Patch", "PATCH {type}/{id}", fhirPathPatch, ""},
	{"`conditional-patch`", "PATCH {type}?_id={id}", `[{"op":"add","path":"/language","value":"en"}]`, asJSONPatch},
	{"`delete`", "DELETE {type}/{id}", "", ""},
	{"`conditional-delete`", "DELETE {type}?_id={id}", "", ""},
	{"Batches and transactions", "", "", ""},
	{"batch: `read`", "POST ", fmt.Sprintf(batchOf, "batch", getEntry), ""},
	{"batch: `update`", "POST ", fmt.Sprintf(batchOf, "batch", putEntry), ""},
	{"transaction: `read` of Patient/a and `read`", "POST ", fmt.Sprintf(batchOf, "transaction", ownEntry+","+getEntry), ""},
	{"transaction: `update`", "POST ", fmt.Sprintf(batchOf, "transaction", putEntry), ""},
	{"Operations, exports and the rest", "", "", ""},
	{"`Patient/{id}/$everything`", "GET Patient/{owner}/$everything", "", ""},
	{"`{type}/$lastn`", "GET {type}/$lastn", "", ""},
	{"`{type}/$validate`", "POST {type}/$validate", "{new}", ""},
	{"`{type}/{id}/$validate`", "POST {type}/{id}/$validate", "{new}", ""},
	{"`{type}/{id}/$meta`", "GET {type}/{id}/$meta", "", ""},
	{"`ValueSet/$expand`", "GET ValueSet/$expand?url=http://v", "", ""},
	{"`Patient/$match`", "POST Patient/$match", `{"resourceType":"Parameters"}`, ""},
	{"`Patient/$member-match`", "POST Patient/$member-match", `{"resourceType":"Parameters"}`, ""},
	{"`$graphql`", "GET $graphql?query={Patient(id:1){id}}", "", ""},
	{"another operation", "GET {type}/$unheard", "", ""},
	{"`$export`", "GET $export", "", preferAsync},
	{"`$export` with `_type`", "GET $export?_type=Observation", "", preferAsync},
	{"`Patient/$export`", "GET Patient/$export", "", preferAsync},
	{"`Group/{id}/$export`", "GET Group/g/$export", "", preferAsync},
	{"export job of another token", "job", "", ""},
	{"`capabilities`", "GET metadata", "", ""},
	{"`read` of terminology", "GET ValueSet/s", "", ""},
	{"`search-type` of terminology", "GET ValueSet", "", ""},
	{"a type that R4 does not have", "GET Unheard/1", "", ""},
}

// requestBy returns the row's request for a column.
func (row decisionRow) requestBy(a decisionColumn) *http.Request {
	method, target, _ := strings.Cut(a.fill(row.request), " ")
	path, query, _ := strings.Cut(target, "?")
	r := httptest.NewRequest(method, strings.TrimSuffix("/fhir/R4/"+path, "/"), strings.NewReader(a.fill(row.body)))
	r.URL.RawQuery = strings.ReplaceAll(query, " ", "%20")
	r.RequestURI = r.URL.RequestURI()
	if row.body != "" {
		r.Header.Set("Content-Type", "application/fhir+json")
	}
	for line := range strings.Lines(a.fill(row.header)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		r.Header.Set(name, value)
	}
	return r
}

// chains and reverseChains are chained searches, by requested type.
var (
	chains = map[string]string{
		"Observation": "subject:Patient.family={family}", "Patient": "general-practitioner:Practitioner.name=Park",
		"Practitioner": "_has:Patient:general-practitioner:family={family}",
	}
	reverseChains = map[string]string{"Observation": "DiagnosticReport:result", "Patient": "Observation:subject", "Practitioner": "Observation:performer"}
	families      = map[string]string{"a": "Adams", "b": "Brown"}
)

// fill replaces the placeholders in part of a request.
func (a decisionColumn) fill(text string) string {
	other := map[string]string{"a": "b", "b": "a"}[a.owner]
	with := func(name, value string) string {
		changed, _ := rawjson.WithMember([]byte(decidedTexts[a.of.String()]), name, []byte(value))
		return string(changed)
	}
	return strings.NewReplacer(
		"{chain}", strings.ReplaceAll(chains[a.of.Type], "{family}", families[a.owner]), "{has}", reverseChains[a.of.Type], "{type}", a.of.Type, "{id}", a.of.ID, "{owner}", a.owner, "{other}", other,
		"{new}", with("language", `"en"`), "{fresh}", with("id", `"fresh"`), "{moved}", with("subject", `{"reference":"Patient/`+other+`"}`),
		"{two}", strings.Replace(decidedObservation("two", a.owner, "laboratory", ""), "Practitioner/p", "Patient/"+other, 1),
	).Replace(text)
}

// operatingServer is a FHIR server that also supports type-level histories, JSON Patch, and operations that return all records.
// It ignores chains like unknown parameters.
type operatingServer struct{ *fhirtest.Server }

func (s operatingServer) ServeHTTP(w http.ResponseWriter, r *http.Request) error {
	path := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/fhir/R4"), "/")
	var answer string
	switch _, operation, _ := strings.Cut(path, "$"); {
	case operation == "everything" || operation == "lastn" || operation == "match" || operation == "unheard":
		answer = s.everything("searchset")
	case operation == "export":
		w.Header().Set("Content-Location", fhirtest.Address+"/_job/1")
		w.WriteHeader(http.StatusAccepted)
		return nil
	case operation == "expand":
		answer = `{"resourceType":"ValueSet","status":"active"}`
	case operation != "":
		answer = `{"resourceType":"OperationOutcome","issue":[{"severity":"information","code":"informational"}]}`
	case path == "metadata":
		answer = `{"resourceType":"CapabilityStatement"}`
	case path == "_history" || strings.HasSuffix(path, "/_history") && strings.Count(path, "/") == 1:
		answer = s.everything("history")
	default:
		s.adapt(r)
		return s.Server.ServeHTTP(w, r)
	}
	w.Header().Set("Content-Type", "application/fhir+json")
	_, err := io.WriteString(w, answer)
	return err
}

// adapt converts a request into one that the server supports.
func (s operatingServer) adapt(r *http.Request) {
	if r.Header.Get("Content-Type") == "application/json-patch+json" {
		resourceType, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/fhir/R4/"), "/")
		r.Body = io.NopCloser(strings.NewReader(strings.ReplaceAll(fhirPathPatch, "{type}", resourceType)))
	}
	pairs := slices.DeleteFunc(strings.Split(r.URL.RawQuery, "&"), func(pair string) bool {
		name, _, _ := strings.Cut(pair, "=")
		return strings.Contains(name, ".") || strings.HasPrefix(name, "_has")
	})
	r.URL.RawQuery = strings.Join(pairs, "&")
}

// everything returns a Bundle of all records.
func (s operatingServer) everything(kind string) string {
	var entries []string
	for _, text := range decided {
		of := referenceOf(text)
		entry := fmt.Sprintf(`{"fullUrl":"%s/%s","resource":%s`, fhirtest.Address, of, s.Get(of))
		if kind == "history" {
			entry += fmt.Sprintf(`,"request":{"method":"PUT","url":%q},"response":{"status":"200"}`, of)
		}
		entries = append(entries, entry+"}")
	}
	return fmt.Sprintf(`{"resourceType":"Bundle","type":%q,"entry":[%s]}`, kind, strings.Join(entries, ","))
}

// rejectedRequest is a request that the guard rejects.
type rejectedRequest struct {
	request, body, header string
	holder                access.Holder
}

// refusals are the rejections with documented descriptions. Requests without a holder are sent by ofPatient.
var refusals = []rejectedRequest{
	{"GET Observation/b", "", "", access.Holder{}},
	{"GET Observation/o", "", "", access.Holder{Scope: "patient/Patient.rs", Patient: "a"}},
	{"GET Observation/o", "", "", access.Holder{Scope: "patient/*.rs"}},
	{"GET Observation/o", "", "", access.Holder{Scope: "patient/*.rs", RelationshipEnded: true}},
	{"GET Observation/o", "", "", access.Holder{Scope: "user/*.rs", User: interaction.Reference{Type: "Person", ID: "x"}}},
	{"GET Observation?_filter=status eq final", "", "", access.Holder{}},
	{"GET Observation?_list=1", "", "", access.Holder{}},
	{"GET Observation?_query=mine", "", "", access.Holder{}},
	{"GET Observation?_text=pain", "", "", access.Holder{}},
	{"GET Observation?_contained=both", "", "", access.Holder{}},
	{"GET Observation?mine=1", "", "", access.Holder{}},
	{"GET Observation?subject:below=Patient/a", "", "", access.Holder{}},
	{"GET Observation?code:in=1", "", "", access.Holder{}},
	{"GET Observation?_sort=subject", "", "", access.Holder{}},
	{"GET Observation?subject:Patient.name=Adams", "", "", access.Holder{Scope: "patient/Observation.rs", Patient: "a"}},
	{"GET Observation?_getpages=1", "", "", access.Holder{}},
	{"GET ?_sort=_lastUpdated", "", "", access.Holder{}},
	{"GET Group?_summary=count", "", "", access.Holder{}},
	{"GET Observation/_history", "", "", access.Holder{}},
	{"POST Observation", decidedObservation("n", "b", "laboratory", ""), "", access.Holder{}},
	{"POST Observation", strings.Replace(decidedObservation("n", "a", "laboratory", ""), "Encounter/e", "Encounter/none", 1), "", access.Holder{}},
	{"POST Observation", strings.Replace(decidedObservation("n", "a", "laboratory", ""), "Encounter/e", "Encounter?identifier=1", 1), "", access.Holder{}},
	{"POST Observation", decidedObservation("n", "a", "laboratory", ""), "", access.Holder{Scope: "patient/*.rs", Patient: "a"}},
	{"POST Patient", `{"resourceType":"Patient"}`, "", access.Holder{}},
	{"PUT Practitioner/p", `{"resourceType":"Practitioner","id":"p"}`, "", access.Holder{}},
	{"POST Subscription", observationSubscription("Patient?"), "", observer},
	{"DELETE Observation/o?_cascade=delete", "", "", access.Holder{}},
	{"PATCH Observation/o", `[{"op":"test","path":"/status","value":"final"}]`, asJSONPatch, access.Holder{Scope: "patient/*.u", Patient: "a"}},
	{"PATCH Observation/o", strings.Replace(strings.ReplaceAll(fhirPathPatch, "{type}", "Observation"), "language", "subject", 1), "", access.Holder{}},
	{"POST ", fmt.Sprintf(batchOf, "transaction", ownEntry+`,{"request":{"method":"GET","url":"Observation/b"}}`), "", access.Holder{}},
	{"GET $graphql?query={}", "", "", access.Holder{}},
	{"GET Observation/$meta", "", "", access.Holder{}},
	{"GET $export", "", preferAsync, access.Holder{Scope: "system/Observation.r"}},
	{"GET Observation/_history", "", "", access.Holder{Scope: "patient/*.rs user/Patient.rs", Patient: "a", User: interaction.Reference{Type: "Practitioner", ID: "p"}}},
	{"GET Observation/$lastn", "", "", ofLaboratory},
	{"GET $export", "", preferAsync, userClinician},
	{"GET $export?_type=Patient", "", preferAsync, access.Holder{Scope: "system/Observation.rs"}},
	{"GET $export", "", "", ofSystem},
}

// refusalTable returns a table of the descriptions in refusals.
func refusalTable(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("| scopes | request | status | text | `scope` |\n|---|---|--:|---|---|\n")
	for _, r := range refusals {
		g := newGateway(t, decided...)
		holder := r.holder
		if holder.Scope == "" {
			holder = ofPatient
		}
		row := decisionRow{request: r.request, body: r.body, header: r.header}
		response := g.sendTo(operatingServer{g.server}, holder, row.requestBy(decisionColumn{holder: holder, of: ownRecord, owner: "a"}))
		text, err := io.ReadAll(response.Body)
		if err != nil || response.StatusCode < 400 {
			t.Errorf("%s: status %d, %v", r.request, response.StatusCode, err)
		}
		lacking := response.Header.Get("Scope")
		if lacking != "" {
			lacking = "`" + lacking + "`"
		}
		fmt.Fprintf(&b, "| `%s` | `%s` | %d | %s | %s |\n", holder.Scope, strings.TrimSpace(r.request), response.StatusCode, text, lacking)
	}
	return strings.ReplaceAll(b.String(), "c|lab", `c\|lab`)
}
