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

// Request is a request to the admin API.
type Request struct {
	Method string     // of HTTP
	Path   []string   // below /fhir, unescaped
	Query  url.Values // parameters with an empty first value are omitted
	Body   []byte     // JSON; may be nil
}

func (r Request) target() string {
	target := "/fhir"
	for _, part := range r.Path {
		target += "/" + strings.ReplaceAll(url.PathEscape(part), ".", "%2E") // lest . and .. be taken for folders
	}
	query := maps.Clone(r.Query)
	maps.DeleteFunc(query, func(_ string, values []string) bool { return values[0] == "" })
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	return target
}

// asking sends a request to the admin API, and returns the body of its answer. A refusal is an error with the
// gateway's reason.
type asking func(context.Context, Request) ([]byte, error)

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
	return func(_ context.Context, r Request) ([]byte, error) {
		header := http.Header{}
		if r.Body != nil {
			header.Set("Content-Type", "application/json")
		}
		response, err := caddycmd.AdminAPIRequest(address, r.Method, r.target(), header, bytes.NewReader(r.Body))
		if err != nil {
			// The text has the URL, whose query may name a hundred people.
			return nil, errors.New("asking the gateway: " + strings.ReplaceAll(err.Error(), r.target(), Request{Path: r.Path}.target()))
		}
		text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
		return text, errors.Join(err, response.Body.Close())
	}, nil
}
