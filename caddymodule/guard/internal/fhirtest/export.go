package fhirtest

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/compartment"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

// linesPerFile is the number of resources in an exported file.
const linesPerFile = 2

type exportJob struct {
	polls    int
	count    int
	manifest string
}

// isExport reports whether a request starts an export or accesses its job.
func isExport(i interaction.Interaction) bool {
	return i.Kind == interaction.Operation && (i.Operation == "$export" || i.Operation == "$export-poll-status")
}

// export starts an export or serves its job. Like HAPI, it stores each file as a Binary.
func (s *Server) export(w http.ResponseWriter, i interaction.Interaction, body []byte) {
	if i.Operation == "$export-poll-status" {
		s.serveJobStatus(w, parameterValue(i.Parameters, "_jobId"))
		return
	}
	parameters := slices.Concat(i.Parameters, parseExportParameters(body))
	if i.Type == "Group" && s.currentVersion("Group/"+i.ID) == nil {
		writeOutcome(w, http.StatusNotFound, "Group/"+i.ID+" does not exist")
		return
	}
	for _, p := range parameters {
		if p.Name == "patient" && s.currentVersion(p.Value) == nil {
			writeOutcome(w, http.StatusNotFound, p.Value+" does not exist")
			return
		}
	}
	id := len(s.jobs)
	s.jobs = append(s.jobs, s.runExport(id, i, parameters, parameterValue(parameters, "_outputFormat")))
	w.Header().Set("Content-Location", fmt.Sprintf("%s/$export-poll-status?_jobId=%d", Address, id))
	w.WriteHeader(http.StatusAccepted)
}

// serveJobStatus reports a job as in progress once, then as complete.
func (s *Server) serveJobStatus(w http.ResponseWriter, id string) {
	n, err := strconv.Atoi(id)
	if err != nil || n >= len(s.jobs) {
		writeOutcome(w, http.StatusNotFound, "no job "+id)
		return
	}
	j := &s.jobs[n]
	if j.polls++; j.polls == 1 {
		w.Header().Set("X-Progress", fmt.Sprintf("%d resources", j.count))
		w.WriteHeader(http.StatusAccepted)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write([]byte(j.manifest))
}

func parseExportParameters(body []byte) (list []smart.Parameter) {
	var b struct {
		Parameter []struct {
			Name, ValueString, ValueInstant string
			ValueReference                  struct{ Reference string }
		}
	}
	_ = json.Unmarshal(body, &b) // no parameters if it fails
	for _, p := range b.Parameter {
		list = append(list, smart.Parameter{Name: p.Name, Value: p.ValueString + p.ValueInstant + p.ValueReference.Reference})
	}
	return list
}

// runExport writes the files of an export (at least one per type, one for deletions) and its manifest.
func (s *Server) runExport(id int, i interaction.Interaction, parameters []smart.Parameter, format string) exportJob {
	lines := map[string][]string{}
	var deleted, names []string
	for _, key := range s.order {
		text := s.currentVersion(key)
		if text == nil {
			deleted = append(deleted, `{"resourceType":"Bundle","type":"transaction","entry":[{"request":{"method":"DELETE","url":"`+key+`"}}]}`)
			continue
		}
		res, err := resource.Parse(text)
		if err != nil || res.Type == "Binary" || !s.isExported(res, i, parameters) {
			continue
		}
		lines[res.Type] = append(lines[res.Type], string(text))
		names = append(names, key)
	}
	file := func(name, of string, content []string) string {
		name = fmt.Sprintf("export-%d-%s", id, name)
		s.addVersion(interaction.Reference{Type: "Binary", ID: name}, []byte(`{"resourceType":"Binary","contentType":`+strconv.Quote(cmp.Or(format, "application/fhir+ndjson"))+
			`,"data":"`+base64.StdEncoding.EncodeToString([]byte(strings.Join(content, "\n")+"\n"))+`"}`))
		return fmt.Sprintf(`{"type":"%s","url":"%s/Binary/%s","count":%d}`, of, Address, name, len(content))
	}
	var output []string
	for _, t := range interaction.Types() {
		n := 0
		for chunk := range slices.Chunk(lines[t], linesPerFile) {
			output = append(output, file(fmt.Sprintf("%s-%d", t, n), t, chunk))
			n++
		}
	}
	outcomeFile := file("errors", "OperationOutcome", []string{`{"resourceType":"OperationOutcome","issue":[{"severity":"information","code":"informational","diagnostics":"exported ` + strings.Join(names, " ") + `"}]}`})
	manifest := `{"transactionTime":"2026-01-01T00:00:00Z","request":"` + Address + `/$export","requiresAccessToken":false,"output":[` + strings.Join(output, ",") + `],"error":[` + outcomeFile + `]`
	if len(deleted) > 0 {
		manifest += `,"deleted":[` + file("deleted", "Bundle", deleted) + `]`
	}
	return exportJob{count: len(names), manifest: manifest + "}"}
}

// isExported reports whether an export includes a resource.
func (s *Server) isExported(res resource.Resource, i interaction.Interaction, parameters []smart.Parameter) bool {
	if types := parameterValue(parameters, "_type"); types != "" && !slices.Contains(strings.Split(types, ","), res.Type) {
		return false
	}
	var filters []string
	var patients []string
	for _, p := range parameters {
		if p.Name == "_typeFilter" && strings.HasPrefix(p.Value, res.Type+"?") {
			filters = append(filters, strings.TrimPrefix(p.Value, res.Type+"?"))
		}
		if p.Name == "patient" {
			patients = append(patients, strings.TrimPrefix(p.Value, "Patient/"))
		}
	}
	if len(filters) > 0 && !slices.ContainsFunc(filters, func(query string) bool {
		criteria, err := smart.ParseParameters(query)
		return err == nil && s.matches(interaction.Interaction{Kind: interaction.TypeSearch, Type: res.Type, Parameters: criteria}, res)
	}) {
		return false
	}
	if i.Type == "Group" {
		var group struct {
			Member []struct{ Entity struct{ Reference string } }
		}
		_ = json.Unmarshal(s.currentVersion("Group/"+i.ID), &group) // no members if it fails
		for _, m := range group.Member {
			patients = append(patients, strings.TrimPrefix(m.Entity.Reference, "Patient/"))
		}
	} else if i.Type == "" || len(patients) == 0 {
		return i.Type == "" || isInPatientCompartment(res.Type)
	}
	return slices.ContainsFunc(patients, func(id string) bool { return compartment.IsInPatient(res, id) })
}

func isInPatientCompartment(resourceType string) bool {
	_, ok := compartment.PatientParameters(resourceType)
	return ok
}

// serveContent returns the content of a Binary if the client accepts any format.
func (s *Server) serveContent(w http.ResponseWriter, r *http.Request, i interaction.Interaction, text []byte) bool {
	var binary struct {
		ContentType     string
		SecurityContext struct{ Reference string }
		Data            []byte
	}
	accept := r.Header.Get("Accept")
	if i.Type != "Binary" || accept != "*/*" && (!s.SendsContent || strings.Contains(accept, "fhir")) || json.Unmarshal(text, &binary) != nil {
		return false
	}
	w.Header().Set("Content-Type", binary.ContentType)
	if binary.SecurityContext.Reference != "" {
		w.Header().Set("X-Security-Context", binary.SecurityContext.Reference)
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(binary.Data))
	return true
}
