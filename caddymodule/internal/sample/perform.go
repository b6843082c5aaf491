package sample

import (
	"net/http"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// perform answers a request that is no batch or transaction. The caller holds the lock of the store.
func perform(s *Store, q request) (reply, error) {
	switch q.Kind {
	case interaction.Capabilities:
		return capabilities(q)
	case interaction.Read, interaction.VRead:
		return readVersion(s, q)
	case interaction.InstanceHistory:
		return history(s, q)
	case interaction.TypeSearch, interaction.SystemSearch, interaction.CompartmentSearch:
		return search(s, q)
	case interaction.Create, interaction.ConditionalCreate:
		return create(s, q)
	case interaction.Update, interaction.ConditionalUpdate:
		return update(s, q)
	case interaction.Delete, interaction.ConditionalDelete:
		return remove(s, q)
	case interaction.Operation:
		return operate(s, q)
	}
	return reply{}, notImplemented(q)
}

func notImplemented(q request) error {
	return failure{http.StatusNotImplemented, "not-supported", "The sample server does not support this: " + q.Kind.String() + "."}
}
