package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"
)

// request is one to the admin API.
type request struct {
	method string
	path   []string   // below /fhir, unescaped
	query  url.Values // a parameter whose first value is empty is left out
	body   []byte
}

func (r request) target() string {
	target := "/fhir"
	for _, part := range r.path {
		target += "/" + strings.ReplaceAll(url.PathEscape(part), ".", "%2E") // lest . and .. be taken for folders
	}
	query := maps.Clone(r.query)
	maps.DeleteFunc(query, func(_ string, values []string) bool { return values[0] == "" })
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	return target
}

// asking sends a request to the admin API, and returns the body of its answer. A refusal is an error with the
// gateway's reason.
type asking func(context.Context, request) ([]byte, error)

func addAdminFlags(cmd *cobra.Command) {
	cmd.Flags().String("address", "", "address of the admin API, if it is not the default or in --config")
	cmd.Flags().String("config", "", "configuration to read that address from")
	cmd.Flags().String("adapter", "", "name of the configuration's adapter")
}

// maxAnswer bounds what is read of an answer in bytes.
const maxAnswer = 64 << 20

// adminAPI asks the admin API that the flags name.
func adminAPI(cmd *cobra.Command) (asking, error) {
	flags := caddycmd.Flags{FlagSet: cmd.Flags()}
	address, err := caddycmd.DetermineAdminAPIAddress(flags.String("address"), nil, flags.String("config"), flags.String("adapter"))
	if err != nil {
		return nil, fmt.Errorf("finding the admin API: %w", err)
	}
	return func(_ context.Context, r request) ([]byte, error) {
		header := http.Header{}
		if r.body != nil {
			header.Set("Content-Type", "application/json")
		}
		response, err := caddycmd.AdminAPIRequest(address, r.method, r.target(), header, bytes.NewReader(r.body))
		if err != nil {
			// The text has the URL, whose query may name a hundred people.
			return nil, errors.New("asking the gateway: " + strings.ReplaceAll(err.Error(), r.target(), request{path: r.path}.target()))
		}
		text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
		return text, errors.Join(err, response.Body.Close())
	}, nil
}
