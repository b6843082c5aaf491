package expand

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/caddyserver/caddy/v2"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/option"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/suggestion"
	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/expansion"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
	"github.com/caddy-fhir/caddy-fhir/terminology/parameters"
)

func init() {
	caddycmd.RegisterCommand(caddycmd.Command{
		Name:  "fhir-search",
		Usage: "<url> <words...> [--config <path> [--adapter <name>]] [--count <number>] [--language <tags>]",
		Short: "Shows what a filter finds in a value set, and why in this order",
		Long: `
Searches a value set as $expand does with the parameter filter, and shows each
code that is found with the rule that ranked it, and with the designation that
matched where it is not the display.

The definitions are loaded from where fhir_expand of the configuration says; no
gateway needs to run. What only other servers have is not searched. If the
configuration has several fhir_expand with other definitions, the first one that
has the value set counts.

<url>
    The value set, or a code system, which stands for all its codes.

--config, --adapter
    The configuration. Default: the Caddyfile in this folder.

--count
    How many codes to show, up to 1000. Default: 10

--language
    The languages of displays, as displayLanguage of $expand.`,
		CobraFunc: func(cmd *cobra.Command) {
			cmd.Args = cobra.MinimumNArgs(2)
			cmd.RunE = caddycmd.WrapCommandFuncForCobra(searchCommand)
			cmd.Flags().String("config", "", "configuration with fhir_expand")
			cmd.Flags().String("adapter", "", "name of the configuration's adapter")
			cmd.Flags().Int("count", 10, "how many codes to show")
			cmd.Flags().String("language", "", "languages of displays")
		},
	})
}

func searchCommand(flags caddycmd.Flags) (int, error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	arguments := flags.Args()
	s := conceptSearch{
		out: os.Stdout, progress: definitions.Terminal(os.Stderr), url: arguments[0], words: strings.Join(arguments[1:], " "), count: flags.Int("count"), language: flags.String("language"),
	}
	if err := s.run(ctx, flags.String("config"), flags.String("adapter")); err != nil {
		return caddy.ExitCodeFailedStartup, err
	}
	return caddy.ExitCodeSuccess, nil
}

// conceptSearch searches a value set as fhir_expand of a configuration would.
type conceptSearch struct {
	out      io.Writer
	progress io.Writer // of loading; nil: none
	url      string    // of a value set or code system
	words    string
	count    int
	language string
}

// maxSearched is how many codes are shown at most; an expansion explains no more.
const maxSearched = 1000

func (s *conceptSearch) run(ctx context.Context, config, adapter string) error {
	if s.count < 1 || s.count > maxSearched {
		return fmt.Errorf("--count must be 1 to %d", maxSearched)
	}
	if strings.TrimSpace(s.words) == "" {
		return errors.New("no words to search for")
	}
	handlers, err := configuredExpands(config, adapter)
	if err != nil {
		return err
	}
	for _, h := range handlers {
		var x *expansion.Expansion
		if x, err = s.in(ctx, h); err == nil {
			return (&searchReport{Expansion: x}).write(s.out)
		}
		if !errors.Is(err, outcome.ErrUnknown) {
			break
		}
	}
	return err
}

// in searches the definitions of a handler.
func (s *conceptSearch) in(ctx context.Context, h *Expand) (*expansion.Expansion, error) {
	o := h.definitionOptions()
	o.Terminal = s.progress
	l, err := terminology.Load(ctx, o)
	if err != nil {
		return nil, h.Wrap(asDefinitions(err))
	}
	q := expansion.Query{
		ValueSetRef: expansion.ValueSetRef{URL: s.url},
		Page:        expansion.Page{Filter: s.words, Count: &s.count, ExplainFilter: parameters.Yes},
		Language:    definitions.Language{Display: s.language},
		Limits:      h.limits(),
	}
	x, err := l.Expand(ctx, q)
	if !errors.Is(err, outcome.ErrUnknown) {
		return x, err
	}
	q.URL, q.Version, _ = strings.Cut(s.url, "|")
	q.URL += "?fhir_vs" // all codes of a code system
	if x, err := l.Expand(ctx, q); !errors.Is(err, outcome.ErrUnknown) {
		return x, err
	}
	return nil, h.Wrap(fmt.Errorf("%w: the definitions have neither a value set nor a code system %s%s", outcome.ErrUnknown, s.url, nearestSystem(l, s.url)))
}

// nearestSystem suggests a code system for a url with a typing error.
func nearestSystem(l *terminology.Library, url string) string {
	var known []string
	for _, system := range l.Capabilities().CodeSystems {
		if suggestion.TypingErrors(url, system.URI) <= 3 {
			known = append(known, system.URI)
		}
	}
	return option.DidYouMean(url, known)
}
