package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/caddyserver/caddy/v2"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/features/backup/storecopy"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/fhirapp"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/copyguard"
)

func init() {
	caddycmd.RegisterCommand(caddycmd.Command{
		Name:  "fhir-store",
		Usage: "copy --from <path> --to <path> [--adapter <name>] [--merge] [--force]",
		Short: "Copies what the fhir app has stored to another store",
		CobraFunc: func(cmd *cobra.Command) {
			cmd.AddCommand(storeCopyCommand())
		},
	})
}

func storeCopyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "copy --from <path> --to <path> [--adapter <name>] [--merge] [--force]",
		Short: "Copies the durable store of one configuration to that of another",
		Long:  storeCopyHelp,
		Args:  cobra.NoArgs,
		RunE:  caddycmd.WrapCommandFuncForCobra(copyStore),
	}
	cmd.Flags().String("from", "", "configuration to copy from")
	cmd.Flags().String("to", "", "configuration to copy to")
	cmd.Flags().String("adapter", "", "name of the configurations' adapter")
	cmd.Flags().Bool("merge", false, "copy to a store that is not empty")
	cmd.Flags().Bool("force", false, "copy although a gateway seems to run")
	return cmd
}

const storeCopyHelp = `
Copies sessions, refresh tokens, consents, revocations, second factors, and
whatever else is in the durable store that one configuration names, to the one
that another configuration names: a file, redis or postgres. Each entry keeps
what it has left of its lifetime.

All gateways that use either of them must be stopped: the command refuses to
copy while one says in the store that it runs, or has the file open. One that was
killed seems to run for half a minute more. At the end all entries are compared.

After an interruption, the same command completes the copy. Until then no
gateway starts with the target.

--from
    The configuration whose durable store is copied.

--to
    The configuration whose durable store it is copied to. It must be empty.

--adapter
    The name of the adapter of those that are neither JSON nor Caddyfiles by
    their names.

--merge
    Copy to a store that is not empty. What it has stays as it is, and is taken
    for newer; what was deleted there since an earlier copy comes back.

--force
    Copy although a gateway seems to run with one of the stores. What it changes
    meanwhile may be missing in the target.`

const fileLockTimeout = 3 * time.Second

func copyStore(flags caddycmd.Flags) (int, error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	c := storeCopier{
		out: os.Stdout, opener: fhirapp.StoreOpener{Adapter: flags.String("adapter"), LockTimeout: fileLockTimeout},
		merge: flags.Bool("merge"), force: flags.Bool("force"),
	}
	if err := c.run(ctx, flags.String("from"), flags.String("to")); err != nil {
		return caddy.ExitCodeFailedStartup, err
	}
	return caddy.ExitCodeSuccess, nil
}

// storeCopier copies the durable store of a configuration to that of another.
type storeCopier struct {
	out        io.Writer
	opener     fhirapp.StoreOpener
	merge      bool
	force      bool
	lastReport time.Time
}

func (c *storeCopier) run(ctx context.Context, from, to string) error {
	if from == "" || to == "" {
		return errors.New("say from and to which configuration's store to copy: --from, --to")
	}
	source, err := c.opener.Open(ctx, from, false)
	if err != nil {
		return fmt.Errorf("--from %s: %w", from, err)
	}
	defer source.Close()
	target, err := c.opener.Open(ctx, to, true)
	if err != nil {
		return fmt.Errorf("--to %s: %w", to, err)
	}
	defer target.Close()
	if err := c.printf("Copying %s to %s. No gateway may use either.\n", source.Name, target.Name); err != nil {
		return err
	}
	c.lastReport = time.Now()
	counts, err := storecopy.Run(ctx, source, target, storecopy.Options{
		Source: source.Identity, Merge: c.merge, Force: c.force, Batch: target.Batch, Progress: c.reportProgress,
	})
	if err != nil {
		return c.addRemedy(err)
	}
	err = c.printf("Read %d entries: copied %d, kept %d that the target has otherwise, removed %d of an interrupted copy; compared all %d.\n",
		counts.Read, counts.Copied, counts.Conflicts, counts.Removed, counts.Compared)
	return errors.Join(err, c.printf("%s\n", describeKeys(source.Keys, target.Keys)))
}

func (c *storeCopier) printf(format string, args ...any) error {
	_, err := fmt.Fprintf(c.out, format, args...)
	return err
}

// reportInterval is the interval between progress reports.
const reportInterval = 2 * time.Second

func (c *storeCopier) reportProgress(n storecopy.Counts) {
	if time.Since(c.lastReport) < reportInterval {
		return
	}
	c.lastReport = time.Now()
	_ = c.printf("%d entries copied, %d compared …\n", n.Copied, n.Compared) // ignore errors: the final report repeats the numbers
}

// addRemedy adds a remedy to an error.
func (*storeCopier) addRemedy(err error) error {
	remedy := "run the same command again to complete the copy"
	switch {
	case errors.Is(err, storecopy.ErrSameStore):
		return err
	case errors.Is(err, copyguard.ErrRunning):
		remedy = "stop all gateways, or copy all the same with --force"
	case errors.Is(err, storecopy.ErrNotEmpty):
		remedy = "empty it; or, if it was never copied to or from, add what it lacks with --merge"
	case errors.Is(err, storecopy.ErrOtherSource):
		remedy = "complete that one, or empty the target"
	case errors.Is(err, storecopy.ErrConcurrentChange):
		remedy = "stop all gateways; if one wrote to the target, empty that first, as completing the copy replaces what it has; then run the same command again"
	case errors.Is(err, store.ErrFull):
		remedy = "raise max_entries of the target, or give it more memory, and run the same command again"
	}
	return fmt.Errorf("%w; %s", err, remedy)
}

// describeKeys describes the location of signing keys and registered clients after a copy.
func describeKeys(from, to fhirapp.KeysLocation) string {
	sameStorage := from.Storage == to.Storage
	switch {
	case from.InStore && to.InStore:
		return "Signing keys and registered clients were copied too. The keys are sealed: keep store_key as it is."
	case from.InStore:
		return "Signing keys and registered clients are in the store, sealed, but --to has no store_key: without it all tokens end, and clients register again."
	case to.InStore && sameStorage:
		return "Signing keys and registered clients are still in Caddy's storage. The first gateway that starts with store_key copies them to the store."
	case sameStorage:
		return "Signing keys and registered clients stay in Caddy's storage, which both configurations share."
	}
	return "Signing keys and registered clients are in Caddy's storage, which is another one in --to: copy them with caddy storage export and import, or all tokens end."
}
