package recipes

import (
	"math/rand/v2"
	"net/http"
	"strconv"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/labstack/echo/v4"

	"agilelimiter"
	"agilelimiter/httpserver"
)

// NewChi limits one group of routes. Middleware has the shape that chi takes.
func NewChi(things http.HandlerFunc, lim *agilelimiter.ConcurrencyLimiter) http.Handler {
	r := chi.NewRouter()
	r.Method(http.MethodGet, "/stats", httpserver.StatsHandler(lim))
	r.Group(func(r chi.Router) {
		r.Use(httpserver.Middleware(lim))
		r.Get("/api/things", things)
	})
	return r
}

// NewEcho limits one group of routes. Echo turns a returned error into a
// response only after all middleware, so answerErrors does it before: otherwise
// the verdict would see a 200.
func NewEcho(things echo.HandlerFunc, lim *agilelimiter.ConcurrencyLimiter) *echo.Echo {
	answerErrors := func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			if err := next(c); err != nil {
				c.Error(err)
			}
			return nil
		}
	}
	e := echo.New()
	e.GET("/stats", echo.WrapHandler(httpserver.StatsHandler(lim)))
	api := e.Group("/api", echo.WrapMiddleware(httpserver.Middleware(lim)), answerErrors)
	api.GET("/things", things)
	return e
}

// LimitGin is Wrap for a group of gin's routes. Gin's handlers write past any
// http.ResponseWriter that is put in between, so the status is asked of gin.
func LimitGin(lim *agilelimiter.ConcurrencyLimiter) gin.HandlerFunc {
	return func(c *gin.Context) {
		call, ok := lim.TryAdmit()
		if !ok {
			// One to three seconds, so that who was shed together does not come back together.
			c.Header("Retry-After", strconv.Itoa(1+rand.IntN(3)))
			c.AbortWithStatus(http.StatusTooManyRequests)
			return
		}
		outcome := agilelimiter.Aborted
		defer func() { call.End(outcome, call.Age()) }() // after a panic too, then as Aborted
		c.Next()
		if cancelled, _ := agilelimiter.Interrupted(c.Request.Context()); !cancelled {
			outcome = httpserver.DefaultVerdict(c.Request, c.Writer.Status(), c.Writer.Header(), call.Age())
		}
	}
}

// NewGin limits one group of routes.
func NewGin(things gin.HandlerFunc, lim *agilelimiter.ConcurrencyLimiter) *gin.Engine {
	e := gin.New()
	e.GET("/stats", gin.WrapH(httpserver.StatsHandler(lim)))
	e.Group("/api", LimitGin(lim)).GET("/things", things)
	return e
}
