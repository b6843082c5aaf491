package signin

import (
	"context"
	"net/http"
	"strings"
)

// reopener makes requests again of what browsers kept: the configuration may have changed since.
type reopener struct {
	frame  *Frame
	visits *visits
	apps   func(ctx context.Context, query string) (*Request, error)
}

func (o *reopener) reopen(ctx context.Context, text string) (*Request, error) {
	if query, ok := strings.CutPrefix(text, visitPrefix); ok {
		return o.visits.read(query)
	}
	return o.apps(ctx, text)
}

// unseal opens the request of a sign-in page.
func (o *reopener) unseal(r *http.Request, sealed string) (*Request, error) {
	query, err := o.frame.Unseal(r, loginPurpose, sealed)
	if err != nil {
		return nil, err
	}
	return o.reopen(r.Context(), query)
}
