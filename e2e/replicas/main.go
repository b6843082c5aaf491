package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/caddy-fhir/caddy-fhir/e2e/replicas/deployment"
)

// settings are the command's flags.
type settings struct {
	store    string
	gateways int
	rounds   int
	only     string
	atOnce   int
	clients  int
	length   time.Duration
	calm     bool
	round    time.Duration
	people   int
	person   map[string][]byte // entries of one user in the store, by kind
	cuts     bool
	seed     uint64
	folder   string                               // folder for the files of this run
	between  func(address string) (string, error) // see deployment.Config
}

func main() {
	log.SetFlags(0)
	s := settings{atOnce: 50}
	flag.StringVar(&s.store, "store", "redis", "one of "+strings.Join(deployment.Engines, ", "))
	flag.IntVar(&s.gateways, "gateways", 3, "how many")
	flag.IntVar(&s.rounds, "rounds", 20, "rounds of each race")
	flag.StringVar(&s.only, "only", "", "the races whose name contains this")
	flag.IntVar(&s.clients, "clients", 16, "clients of the history")
	flag.DurationVar(&s.length, "length", time.Minute, "length of the history")
	flag.IntVar(&s.people, "people", 1_000_000, "how many sessions and grants crowded has")
	flag.DurationVar(&s.round, "round", time.Second, "length of a round of the figures")
	flag.BoolVar(&s.calm, "calm", false, "a history in which nothing fails")
	flag.BoolVar(&s.cuts, "cuts", true, "network namespaces, so that servers can be cut off, if this machine permits them")
	flag.Uint64Var(&s.seed, "seed", uint64(time.Now().UnixNano()), "of what is chosen at random")
	flag.Parse()
	err := run(s, flag.Arg(0))
	var missing errMissing
	switch {
	case errors.As(err, &missing):
		log.Print("SKIPPED: ", err)
		os.Exit(77)
	case err != nil:
		log.Fatal(err)
	}
}

// errMissing lists the required programs that are not installed.
type errMissing []string

func (e errMissing) Error() string { return "not installed: " + strings.Join(e, ", ") }

func run(s settings, command string) error {
	do := map[string]func(context.Context, settings) error{"races": measureRaces, "history": checkHistories, "figures": measureOperations, "crowded": measureCrowded, "serve": serve}[command]
	if do == nil {
		return fmt.Errorf("%q is not one of races, history, figures, crowded and serve", command)
	}
	if missing := deployment.Missing(s.store); len(missing) > 0 {
		return errMissing(missing)
	}
	s.gateways = s.maxGateways(s.gateways)
	var err error
	if s.folder, err = os.MkdirTemp("", "replicas"); err != nil {
		return err
	}
	defer os.RemoveAll(s.folder)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return do(ctx, s)
}

// maxGateways returns gateways, or 1 if the store supports only one gateway.
func (s *settings) maxGateways(gateways int) int {
	if s.store == "memory" || s.store == "file" {
		return 1
	}
	return gateways
}

// deploy starts a deployment with additional options in the fhir block.
func (s *settings) deploy(options string) (*deployment.Deployment, error) {
	binary := os.Getenv("CADDY_BIN")
	if binary == "" {
		binary = "../caddy"
	}
	binary, err := filepath.Abs(binary)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	address := net.JoinHostPort("localhost", port) // the port is not reserved: another process may use it before nginx does
	if err := l.Close(); err != nil {
		return nil, err
	}
	caddyfile, err := identities(address, options)
	if err != nil {
		return nil, err
	}
	folder, err := os.MkdirTemp(s.folder, s.store)
	if err != nil {
		return nil, err
	}
	c := deployment.Config{
		Binary: binary, Folder: folder, Engine: s.store, Gateways: s.gateways, Address: address, Caddyfile: caddyfile,
		Environ: []string{"FHIR_BACKEND="}, ReadTimeout: "10s", Cuts: s.cuts, Between: s.between,
	}
	d, err := deployment.Start(c)
	if errors.Is(err, deployment.ErrNoNamespaces) {
		log.Print("nothing can be cut off: ", err)
		c.Cuts = false
		d, err = deployment.Start(c)
	}
	return d, err
}

func serve(ctx context.Context, s settings) error {
	d, err := s.deploy("")
	if err != nil {
		return err
	}
	defer d.Stop()
	fmt.Println(d.Issuer, "with the certificate", d.RootFile)
	for _, g := range d.Gateways {
		fmt.Println(g.Name, "at", g.Address, "admin at", g.Admin)
	}
	<-ctx.Done()
	return nil
}
