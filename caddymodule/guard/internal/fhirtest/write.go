package fhirtest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/rawjson"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

// write stores or deletes a resource.
func (s *Server) write(w http.ResponseWriter, r *http.Request, i interaction.Interaction, body []byte) {
	of := interaction.Reference{Type: i.Type, ID: i.ID}
	if i.Kind == interaction.Create {
		of.ID = "new-" + strconv.Itoa(len(s.order)+1)
	}
	versions := s.versions[of.String()]
	there := len(versions) > 0 && versions[len(versions)-1] != nil
	current := fmt.Sprintf(`W/"%d"`, len(versions))
	match, noneMatch := r.Header.Get("If-Match"), r.Header.Get("If-None-Match")
	if s.IgnoresIfMatch && i.Kind == interaction.Delete {
		match = ""
	}
	if match != "" && (match != current || !there) || noneMatch == "*" && there {
		outcome(w, http.StatusPreconditionFailed, "another version than "+match)
		return
	}
	if i.Kind == interaction.Delete {
		if there {
			s.versions[of.String()] = append(versions, nil)
		}
		w.WriteHeader(http.StatusNoContent)
		return
	}
	if i.Kind == interaction.Patch {
		if !there {
			outcome(w, http.StatusNotFound, of.String()+" is not known")
			return
		}
		body = patched(versions[len(versions)-1], body)
	}
	res, err := resource.Parse(body)
	if err != nil || res.Type != of.Type || i.Kind == interaction.Update && res.ID != of.ID {
		outcome(w, http.StatusBadRequest, "the body is another resource")
		return
	}
	for _, match := range literal.FindAllSubmatch(body, -1) {
		if to := string(match[1]); s.Integrity && s.current(to) == nil {
			outcome(w, http.StatusBadRequest, "Resource "+to+" not found")
			return
		}
	}
	s.store(w, of, body, there)
}

// literal matches a reference to a resource of the server.
var literal = regexp.MustCompile(`"reference":"([A-Z][A-Za-z]+/[A-Za-z0-9.-]+)"`)

// store adds a version, and answers with it.
func (s *Server) store(w http.ResponseWriter, of interaction.Reference, body []byte, there bool) {
	status := http.StatusCreated
	if there {
		status = http.StatusOK
	}
	text := s.put(of, body)
	version := len(s.versions[of.String()])
	w.Header().Set("Etag", fmt.Sprintf(`W/"%d"`, version))
	w.Header().Set("Location", fmt.Sprintf("%s/%s/_history/%d", Address, of, version))
	answer(w, status, text)
}

// writeMatch writes what matches the criteria of a conditional interaction.
func (s *Server) writeMatch(w http.ResponseWriter, r *http.Request, i interaction.Interaction, body []byte) {
	var found []resource.Resource
	for _, key := range s.order {
		versions := s.versions[key]
		if res, err := resource.Parse(versions[len(versions)-1]); err == nil && s.matches(i, res) {
			found = append(found, res)
		}
	}
	switch {
	case len(found) > 1:
		outcome(w, http.StatusPreconditionFailed, "several match")
	case i.Kind == interaction.ConditionalCreate && len(found) == 1:
		w.Header().Set("Location", Address+"/"+i.Type+"/"+found[0].ID)
		w.WriteHeader(http.StatusOK)
	case len(found) == 0 && i.Kind == interaction.ConditionalDelete && s.IgnoresIfMatch:
		outcome(w, http.StatusOK, "none matches, which is no error for HAPI")
	case len(found) == 0 && i.Kind == interaction.ConditionalDelete:
		outcome(w, http.StatusNotFound, "none matches")
	case len(found) == 0:
		i.Kind = interaction.Create
		s.write(w, r, i, body)
	default:
		i.ID = found[0].ID
		i.Kind = map[string]interaction.Kind{http.MethodPut: interaction.Update, http.MethodDelete: interaction.Delete}[r.Method]
		body, _ = rawjson.With(body, "id", []byte(strconv.Quote(i.ID)))
		s.write(w, r, i, body)
	}
}

// patched applies a FHIRPath Patch of operations that replace a member of the resource.
func patched(text, patch []byte) []byte {
	var p struct {
		Parameter []struct{ Part []map[string]json.RawMessage }
	}
	if err := json.Unmarshal(patch, &p); err != nil {
		return nil
	}
	for _, operation := range p.Parameter {
		var path string
		var value []byte
		for _, part := range operation.Part {
			for name, v := range part {
				switch {
				case string(part["name"]) == `"path"` && strings.HasPrefix(name, "value"):
					_ = json.Unmarshal(v, &path)
				case string(part["name"]) == `"value"` && strings.HasPrefix(name, "value"):
					value = v
				}
			}
		}
		_, member, _ := strings.Cut(path, ".")
		text, _ = rawjson.With(text, member, value)
	}
	return text
}
