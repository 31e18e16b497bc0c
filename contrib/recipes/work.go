package recipes

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"net"

	"agilelimiter"
)

// DatabaseClassify is Config.Classify for a limiter in front of a database. No
// rows is an answer like any other, and so is a constraint that was violated.
func DatabaseClassify(err error) agilelimiter.Outcome {
	dial, ok := errors.AsType[*net.OpError](err)
	switch {
	case ok && dial.Op == "dial", errors.Is(err, driver.ErrBadConn):
		return agilelimiter.Unreachable
	case errors.Is(err, sql.ErrConnDone), errors.Is(err, sql.ErrTxDone):
		return agilelimiter.Aborted // our own mistake, the database was not asked
	}
	return agilelimiter.Reached
}

// UserName reads one row. The connection comes first: waiting for the pool is
// a queue of ours, and its length must not look like the database's latency.
func UserName(ctx context.Context, db *sql.DB, lim *agilelimiter.Limiter, id int) (string, error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	return agilelimiter.DoContext(ctx, lim, func(ctx context.Context) (name string, err error) {
		err = conn.QueryRowContext(ctx, "SELECT name FROM users WHERE id = ?", id).Scan(&name)
		return name, err
	})
}

// Message is what a broker delivers.
type Message struct {
	Body []byte
	Ack  func()
	Nack func() // deliver it again
}

// Consume handles messages at the pace that the handler's downstream allows.
// Run as many as handle should run at once; while they wait for a slot the
// broker's own queue grows, which is the place for it. Keep the prefetch small.
func Consume(ctx context.Context, messages <-chan Message, lim *agilelimiter.Limiter, handle func(context.Context, []byte) error) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case m, open := <-messages:
			if !open {
				return nil
			}
			err := lim.DoContext(ctx, func(ctx context.Context) error { return handle(ctx, m.Body) })
			switch {
			case err == nil:
				m.Ack()
			case agilelimiter.IsRefusal(err): // ctx ended in the queue: it was not handled
				m.Nack()
				return err
			default:
				m.Nack()
			}
		}
	}
}
