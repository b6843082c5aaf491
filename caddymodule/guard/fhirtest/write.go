package fhirtest

import (
	"fmt"
	"net/http"
	"strconv"

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
	current := fmt.Sprintf(`W/"%d"`, len(versions))
	if match := r.Header.Get("If-Match"); match != "" && (match != current || len(versions) == 0) {
		outcome(w, http.StatusPreconditionFailed, "another version than "+match)
		return
	}
	if i.Kind == interaction.Delete {
		if len(versions) > 0 && versions[len(versions)-1] != nil {
			s.versions[of.String()] = append(versions, nil)
		}
		w.WriteHeader(http.StatusNoContent)
		return
	}
	res, err := resource.Parse(body)
	if err != nil || res.Type != of.Type || i.Kind == interaction.Update && res.ID != of.ID {
		outcome(w, http.StatusBadRequest, "the body is another resource")
		return
	}
	status := http.StatusOK
	if len(versions) == 0 {
		status = http.StatusCreated
	}
	text := s.put(of, body)
	version := len(s.versions[of.String()])
	w.Header().Set("Etag", fmt.Sprintf(`W/"%d"`, version))
	w.Header().Set("Location", fmt.Sprintf("%s/%s/_history/%d", Address, of, version))
	answer(w, status, text)
}
