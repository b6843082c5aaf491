package enforce_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/fhirtest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/rawjson"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// decided are the records of the decision table. What is b's says so.
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

// decidedTexts are the records by their references.
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

// asker is a column: a kind of scope, and the resource that is asked for.
type asker struct {
	kind, target string
	holder       access.Holder
	of           interaction.Reference
	owner        string // the patient whose it is
}

var (
	ownRecord     = interaction.Reference{Type: "Observation", ID: "o"}
	ownVital      = interaction.Reference{Type: "Observation", ID: "v"}
	anothers      = interaction.Reference{Type: "Observation", ID: "b"}
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
var askers = []asker{
	{"`patient/*.cruds`", "own", ofPatient, ownRecord, "a"},
	{"", "another's", ofPatient, anothers, "b"},
	{"", "shared type", ofPatient, sharedRecord, "a"},
	{"`patient/Observation.cruds?category=…`", "own, matches", ofLaboratory, ownRecord, "a"},
	{"", "own, does not match", ofLaboratory, ownVital, "a"},
	{"", "another's, matches", ofLaboratory, anothers, "b"},
	{"`user/*.cruds`, a Patient", "own", userPatient, ownRecord, "a"},
	{"", "another's", userPatient, anothers, "b"},
	{"`user/*.cruds`, a RelatedPerson", "their patient's", userRelated, ownRecord, "a"},
	{"", "another's", userRelated, anothers, "b"},
	{"`user/*.cruds`, a Practitioner", "anybody's", userClinician, anothers, "b"},
	{"`user/*.cruds`, a Person or unknown", "anything", userPerson, ownRecord, "a"},
	{"`system/*.cruds`", "anybody's", ofSystem, anothers, "b"},
	{"`openid fhirUser`, a Patient", "their Patient", ofFHIRUser, interaction.Reference{Type: "Patient", ID: "a"}, "a"},
	{"", "another Patient", ofFHIRUser, interaction.Reference{Type: "Patient", ID: "b"}, "b"},
	{"", "own record", ofFHIRUser, ownRecord, "a"},
	{"no resource scope", "anything", ofOpenID, ownRecord, "a"},
}

// permitted are the columns of the second table: each permission alone.
var permitted = func() []asker {
	var all []asker
	for _, p := range []string{"c", "r", "u", "d", "s", "rs", "read", "write"} {
		all = append(all, asker{"`patient/*." + p + "`", "own", access.Holder{Scope: "patient/*." + p, Patient: "a"}, ownRecord, "a"})
	}
	return all
}()

// mayKnow reports whether the holder may see what is b's.
func (a asker) mayKnow() bool {
	return a.holder.Scope == ofSystem.Scope || a.holder.User == userClinician.User
}

// decisionRow is a row: an interaction, and the request for it. In the request and its parts, {type}, {id}, {owner} and
// {other} are the column's, {new} is a new version of the resource and {moved} one that names another patient.
type decisionRow struct {
	interaction, request string // without a request, it is the title of those that follow
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

// interactions are the rows.
var interactions = []decisionRow{
	{"Reading", "", "", ""},
	{"`read`", "GET {type}/{id}", "", ""},
	{"`vread`", "GET {type}/{id}/_history/1", "", ""},
	{"`history-instance`", "GET {type}/{id}/_history", "", ""},
	{"`history-type`", "GET {type}/_history", "", ""},
	{"`history-system`", "GET _history", "", ""},
	{"Searching", "", "", ""},
	{"`search-type`", "GET {type}", "", ""},
	{"…for one", "GET {type}?_id={id}", "", ""},
	{"…by POST", "POST {type}/_search", "_id={id}", "Content-Type: application/x-www-form-urlencoded"},
	{"…with `_include`", "GET {type}?_include=Observation:subject&_include=Patient:general-practitioner", "", ""},
	{"…with `_revinclude`", "GET {type}?_revinclude=Observation:subject&_revinclude=Observation:performer", "", ""},
	{"…with a chain", "GET {type}?{chain}", "", ""},
	{"…with `_has`", "GET {type}?_has:{has}:status=final", "", ""},
	{"…with `_filter`, `_list`, `_query`, `_text`, `_content`", "GET {type}?_filter=status eq final", "", ""},
	{"…with a parameter of the FHIR server's own", "GET {type}?_unheard=1", "", ""},
	{"…with `_sort`", "GET {type}?_sort=_lastUpdated", "", ""},
	{"…with `_summary=count`", "GET {type}?_summary=count", "", ""},
	{"…with `_elements`", "GET {type}?_elements=id", "", ""},
	{"`search-compartment`, the record's patient", "GET Patient/{owner}/{type}", "", ""},
	{"…another kind", "GET Encounter/e/Observation", "", ""},
	{"`search-system`", "GET ?_type=Patient,Observation,Practitioner", "", ""},
	{"…without `_type`", "GET ", "", ""},
	{"page link of the token", "page", "", ""},
	{"page link of another token", "stolen", "", ""},
	{"page link of the FHIR server", "GET ?_getpages=0", "", ""},
	{"Writing", "", "", ""},
	{"`create`", "POST {type}", "{new}", ""},
	{"…of a record that names two patients", "POST Observation", "{two}", ""},
	{"`conditional-create`, nothing matches", "POST {type}", "{new}", "If-None-Exist: identifier=none"},
	{"…the record matches", "POST {type}", "{new}", "If-None-Exist: _id={id}"},
	{"`update`", "PUT {type}/{id}", "{new}", ""},
	{"…that creates", "PUT {type}/fresh", "{fresh}", ""},
	{"…that gives the record to another patient", "PUT {type}/{id}", "{moved}", ""},
	{"`conditional-update`", "PUT {type}?_id={id}", "{new}", ""},
	{"`patch`, JSON Patch", "PATCH {type}/{id}", `[{"op":"add","path":"/language","value":"en"}]`, asJSONPatch},
	{"…that gives the record to another patient", "PATCH {type}/{id}", `[{"op":"replace","path":"/subject/reference","value":"Patient/{other}"}]`, asJSONPatch},
	{"…FHIRPath Patch", "PATCH {type}/{id}", fhirPathPatch, ""},
	{"`conditional-patch`", "PATCH {type}?_id={id}", `[{"op":"add","path":"/language","value":"en"}]`, asJSONPatch},
	{"`delete`", "DELETE {type}/{id}", "", ""},
	{"`conditional-delete`", "DELETE {type}?_id={id}", "", ""},
	{"Batches and transactions", "", "", ""},
	{"batch: `read`", "POST ", fmt.Sprintf(batchOf, "batch", getEntry), ""},
	{"batch: `update`", "POST ", fmt.Sprintf(batchOf, "batch", putEntry), ""},
	{"transaction: `read` of Patient/a, `read`", "POST ", fmt.Sprintf(batchOf, "transaction", ownEntry+","+getEntry), ""},
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
	{"…with `_type`", "GET $export?_type=Observation", "", preferAsync},
	{"`Patient/$export`", "GET Patient/$export", "", preferAsync},
	{"`Group/{id}/$export`", "GET Group/g/$export", "", preferAsync},
	{"export job of another token", "job", "", ""},
	{"`capabilities`", "GET metadata", "", ""},
	{"`read` of terminology", "GET ValueSet/s", "", ""},
	{"`search-type` of terminology", "GET ValueSet", "", ""},
	{"a type that R4 does not have", "GET Unheard/1", "", ""},
}

// requestBy is the request of a row for a column.
func (row decisionRow) requestBy(a asker) *http.Request {
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

// chains and reverseChains are searches over other types, for each type that is asked for.
var (
	chains = map[string]string{
		"Observation": "subject:Patient.family={family}", "Patient": "general-practitioner:Practitioner.name=Park",
		"Practitioner": "_has:Patient:general-practitioner:family={family}",
	}
	reverseChains = map[string]string{"Observation": "DiagnosticReport:result", "Patient": "Observation:subject", "Practitioner": "Observation:performer"}
	families      = map[string]string{"a": "Adams", "b": "Brown"}
)

// fill puts what is the column's into a part of a request.
func (a asker) fill(text string) string {
	other := map[string]string{"a": "b", "b": "a"}[a.owner]
	with := func(name, value string) string {
		changed, _ := rawjson.With([]byte(decidedTexts[a.of.String()]), name, []byte(value))
		return string(changed)
	}
	return strings.NewReplacer(
		"{chain}", strings.ReplaceAll(chains[a.of.Type], "{family}", families[a.owner]), "{has}", reverseChains[a.of.Type], "{type}", a.of.Type, "{id}", a.of.ID, "{owner}", a.owner, "{other}", other,
		"{new}", with("language", `"en"`), "{fresh}", with("id", `"fresh"`), "{moved}", with("subject", `{"reference":"Patient/`+other+`"}`),
		"{two}", strings.Replace(decidedObservation("two", a.owner, "laboratory", ""), "Practitioner/p", "Patient/"+other, 1),
	).Replace(text)
}

// operatingServer is a FHIR server that also has operations, which answer with everything, histories of types, and
// JSON Patch. Chains it takes for parameters that it does not know.
type operatingServer struct{ *fhirtest.Server }

// ServeHTTP implements message.NextHandler.
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

// adapt makes a request one that the server knows.
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

// everything is a Bundle of all records.
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
