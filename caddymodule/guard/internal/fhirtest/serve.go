package fhirtest

import (
	"net/http"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// serve answers what is no batch or transaction.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, i interaction.Interaction, body []byte) {
	if token := value(i.Parameters, "_getpages"); token != "" && i.Kind == interaction.SystemSearch {
		s.next(w, token)
		return
	}
	if isExport(i) {
		s.export(w, i, body)
		return
	}
	switch i.Kind {
	case interaction.Read, interaction.VRead:
		s.read(w, r, i)
	case interaction.InstanceHistory:
		s.history(w, i)
	case interaction.TypeSearch, interaction.SystemSearch, interaction.CompartmentSearch:
		s.search(w, i)
	case interaction.Create, interaction.Update, interaction.Delete, interaction.Patch:
		s.write(w, r, i, body)
	case interaction.ConditionalCreate, interaction.ConditionalUpdate, interaction.ConditionalDelete:
		s.writeMatch(w, r, i, body)
	default:
		outcome(w, http.StatusNotImplemented, "not supported: "+i.Kind.String())
	}
}
