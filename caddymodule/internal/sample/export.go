package sample

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/compartment"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

// export handles $export for the system, for all patients or for a group.
func export(s *Store, q request) (reply, error) {
	if !q.IsAsync {
		return reply{}, newInvalid("$export requires the header Prefer: respond-async.")
	}
	types, since, err := q.exportParameters()
	if err != nil {
		return reply{}, err
	}
	matches, err := exportFilter(s, q)
	if err != nil {
		return reply{}, err
	}
	job := &exportJob{id: newID(), request: q.base + "/" + q.Path() + "?" + smart.EncodeParameters(q.Parameters), startedAt: now(), files: map[string][][]byte{}}
	job.request = strings.TrimSuffix(job.request, "?")
	err = s.forEachResource(q, types, func(v *version) error {
		if !v.updatedAt.Before(since) && matches(v.Resource) {
			job.files[v.reference.Type] = append(job.files[v.reference.Type], v.text)
		}
		return nil
	})
	if err != nil {
		return reply{}, err
	}
	s.exports.add(job)
	return reply{status: http.StatusAccepted, header: http.Header{"Content-Location": {q.base + "/" + exportPath + job.id}}}, nil
}

// exportParameters returns the types to export and the time given by _since.
func (q request) exportParameters() (types []string, since time.Time, err error) {
	if err = q.checkParameters("_outputFormat", "_since", "_type"); err != nil {
		return nil, since, err
	}
	if format := parameterValue(q.Parameters, "_outputFormat"); format != "" && !strings.HasSuffix(format, "ndjson") {
		return nil, since, newUnsupported("Unsupported _outputFormat: use application/fhir+ndjson.")
	}
	if text := parameterValue(q.Parameters, "_since"); text != "" {
		if since, err = time.Parse(time.RFC3339, text); err != nil {
			return nil, since, newInvalid("_since must be an instant, such as 2026-01-01T00:00:00Z.")
		}
	}
	names := parameterValue(q.Parameters, "_type")
	if names == "" {
		return interaction.Types(), since, nil
	}
	for name := range strings.SplitSeq(names, ",") {
		if !interaction.IsType(name) {
			return nil, since, newInvalid("_type contains an unknown resource type.")
		}
		types = append(types, name)
	}
	slices.Sort(types)
	return slices.Compact(types), since, nil
}

// exportFilter returns a predicate for the resources to export.
func exportFilter(s *Store, q request) (func(resource.Resource) bool, error) {
	switch {
	case q.Type == "":
		return func(resource.Resource) bool { return true }, nil
	case q.Type == "Patient" && q.ID == "":
		return func(r resource.Resource) bool {
			for range compartment.Patients(r) {
				return true
			}
			return false
		}, nil
	case q.Type == "Group" && q.ID != "":
		return groupFilter(s, q)
	}
	return nil, requestFailure{http.StatusNotFound, "not-found", "$export is only supported on the system, on Patient and on a Group."}
}

// groupFilter returns a predicate for the resources that belong to members of a group.
func groupFilter(s *Store, q request) (func(resource.Resource) bool, error) {
	group, err := s.find(q.reference(), "")
	if err != nil {
		return nil, err
	}
	members := map[string]bool{}
	for text := range group.Values(resource.Path{Elements: []string{"member", "entity", "reference"}}) {
		if id, ok := strings.CutPrefix(resource.Text(text), "Patient/"); ok {
			members[id] = true
		}
	}
	return func(r resource.Resource) bool {
		for patient := range compartment.Patients(r) {
			if members[patient] {
				return true
			}
		}
		return false
	}, nil
}

const (
	exportPath     = "_export/" // path of jobs and files, relative to the base
	exportLifetime = time.Hour
	maxExports     = 20 // maximum number of stored exports; the oldest is removed first
)

// exports contains the jobs of $export, oldest first.
type exports struct {
	mu   sync.Mutex
	jobs []*exportJob
}

// exportJob is an export (Bulk Data Access 2.0) of the resources that existed when it was started. The first status request
// returns 202, so that apps can test polling.
type exportJob struct {
	id, request     string
	startedAt       time.Time
	statusRequested bool                // whether the status has been requested
	files           map[string][][]byte // lines by type
}

func (e *exports) add(job *exportJob) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.jobs = append(e.jobs, job)
	e.jobs = slices.Clone(e.jobs[max(0, len(e.jobs)-maxExports):])
}

// serve returns the status of a job, or one of its files.
func (e *exports) serve(method, base, path string) (reply, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	id, file, isFile := strings.Cut(path, "/")
	at := slices.IndexFunc(e.jobs, func(j *exportJob) bool { return j.id == id && time.Since(j.startedAt) < exportLifetime })
	isRead := method == http.MethodGet || method == http.MethodHead
	switch {
	case at < 0:
		return reply{}, requestFailure{http.StatusNotFound, "not-found", "Export not found."}
	case isFile && isRead:
		return e.jobs[at].file(file)
	case isRead:
		return e.jobs[at].status(base)
	case method == http.MethodDelete && !isFile:
		e.jobs = slices.Delete(e.jobs, at, at+1)
		return reply{status: http.StatusAccepted}, nil
	}
	return reply{}, requestFailure{http.StatusMethodNotAllowed, "not-supported", "Method not allowed: use GET or DELETE for an export."}
}

// status returns 202 for the first request and the manifest after that.
func (j *exportJob) status(base string) (reply, error) {
	if !j.statusRequested {
		j.statusRequested = true
		return reply{status: http.StatusAccepted, header: http.Header{"Retry-After": {"1"}, "X-Progress": {"at work"}}}, nil
	}
	output := []object{}
	for _, name := range slices.Sorted(maps.Keys(j.files)) {
		output = append(output, object{"type": name, "url": base + "/" + exportPath + j.id + "/" + name + ".ndjson", "count": len(j.files[name])})
	}
	text, err := json.Marshal(object{
		"transactionTime": j.startedAt, "request": j.request, "requiresAccessToken": true, "output": output, "error": []object{},
	})
	response := newReply(http.StatusOK, text)
	response.header = http.Header{"Content-Type": {"application/json"}, "Expires": {j.startedAt.Add(exportLifetime).Format(http.TimeFormat)}}
	return response, err
}

// file returns the exported resources of a type, one per line.
func (j *exportJob) file(name string) (reply, error) {
	name, ok := strings.CutSuffix(name, ".ndjson")
	if !ok || j.files[name] == nil {
		return reply{}, requestFailure{http.StatusNotFound, "not-found", "Export file not found."}
	}
	var lines bytes.Buffer
	for _, text := range j.files[name] {
		if err := json.Compact(&lines, text); err != nil {
			return reply{}, err
		}
		lines.WriteByte('\n')
	}
	return reply{http.StatusOK, http.Header{"Content-Type": {"application/fhir+ndjson"}}, lines.Bytes()}, nil
}
