package sample

import (
	"net/http"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// perform answers a request that is no batch or transaction. The caller holds the lock of the store.
func (s *Store) perform(q request) (reply, error) {
	switch q.Kind {
	case interaction.Capabilities:
		return capabilities(q)
	case interaction.Read, interaction.VRead:
		return s.readVersion(q)
	case interaction.InstanceHistory:
		return s.history(q)
	case interaction.TypeSearch, interaction.SystemSearch, interaction.CompartmentSearch:
		return s.search(q)
	case interaction.Create, interaction.ConditionalCreate:
		return s.create(q)
	case interaction.Update, interaction.ConditionalUpdate:
		return s.update(q)
	case interaction.Delete, interaction.ConditionalDelete:
		return s.delete(q)
	case interaction.Operation:
		switch {
		case q.Operation == "$everything" && q.Type == "Patient" && q.ID != "" && q.method != http.MethodPost:
			return s.everything(q)
		case q.Operation == "$export" && q.method == http.MethodGet:
			return s.export(q)
		}
	}
	return reply{}, failure{http.StatusNotImplemented, "not-supported", "The sample server does not support this: " + q.Kind.String() + "."}
}
