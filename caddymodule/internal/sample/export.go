package sample

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/compartment"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

// export answers $export of the system, of all patients or of a group.
func export(s *Store, q request) (reply, error) {
	if !q.Async {
		return reply{}, invalid("An export takes the header Prefer: respond-async.")
	}
	types, since, err := q.exportParameters()
	if err != nil {
		return reply{}, err
	}
	holds, err := exported(s, q)
	if err != nil {
		return reply{}, err
	}
	job := &exportJob{id: newID(), request: q.base + "/" + q.Path() + "?" + smart.EncodeParameters(q.Parameters), began: now(), files: map[string][][]byte{}}
	job.request = strings.TrimSuffix(job.request, "?")
	err = s.each(q, types, func(v *version) error {
		if !v.updated.Before(since) && holds(v.Resource) {
			job.files[v.of.Type] = append(job.files[v.of.Type], v.text)
		}
		return nil
	})
	if err != nil {
		return reply{}, err
	}
	s.exports.add(job)
	return reply{status: http.StatusAccepted, header: http.Header{"Content-Location": {q.base + "/" + exportPath + job.id}}}, nil
}

// exportParameters are the types to export, and since when.
func (q request) exportParameters() (types []string, since time.Time, err error) {
	if err = q.takes("_outputFormat", "_since", "_type"); err != nil {
		return nil, since, err
	}
	if format := value(q.Parameters, "_outputFormat"); format != "" && !strings.HasSuffix(format, "ndjson") {
		return nil, since, unsupported("Files are in application/fhir+ndjson only.")
	}
	if text := value(q.Parameters, "_since"); text != "" {
		if since, err = time.Parse(time.RFC3339, text); err != nil {
			return nil, since, invalid("_since must be an instant, such as 2026-01-01T00:00:00Z.")
		}
	}
	names := value(q.Parameters, "_type")
	if names == "" {
		return interaction.Types(), since, nil
	}
	for name := range strings.SplitSeq(names, ",") {
		if !interaction.IsType(name) {
			return nil, since, invalid("_type names what is no resource type.")
		}
		types = append(types, name)
	}
	slices.Sort(types)
	return slices.Compact(types), since, nil
}

// exported tells which resources are part of an export.
func exported(s *Store, q request) (func(resource.Resource) bool, error) {
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
		return ofGroup(s, q)
	}
	return nil, failure{http.StatusNotFound, "not-found", "An export is of the system, of all patients or of a group."}
}

// ofGroup tells which resources are of the members of a group.
func ofGroup(s *Store, q request) (func(resource.Resource) bool, error) {
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
